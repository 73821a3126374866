// Compares plans with fused products, sums and reductions of chains on the CPU device with plans without fusion.
#include <catch2/catch.hpp>

#include <algorithm>

#include "tests/engine/execution/training_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

CompileOptions without(const std::string& pass) {
  CompileOptions options = on("cpu");
  options.disabled = {pass};
  return options;
}
size_t steps_of(const Executable& executable, const std::string& what) {
  return static_cast<size_t>(std::count_if(executable.steps().begin(), executable.steps().end(),
                                           [&](const PlanStep& s) { return s.what == what; }));
}

void check_near(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    double largest = 1e-6;
    for (int64_t j = 0; j < b[i].size(); ++j) largest = std::max<double>(largest, std::abs(b[i].data<float>()[j]));
    for (int64_t j = 0; j < a[i].size(); ++j)
      REQUIRE(a[i].data<float>()[j] == Approx(b[i].data<float>()[j]).margin(2e-6 * largest).epsilon(1e-5));
  }
}

// Three maps read x, like query, key and value of attention, so its gradient is a sum of three products.
TrainingStep three_maps(int64_t rows, int64_t width) {
  TrainingStep step;
  Tracer tracer("maps");
  std::vector<HTensor> weights;
  for (const char* name : {"in", "a", "b", "c"}) {
    weights.push_back(tracer.parameter(name, {DType::F32, {width, width}}));
    step.numbers[name] = noise({width, width}, static_cast<uint32_t>(name[0]), 0.2f);
  }
  step.numbers["x"] = noise({rows, width}, 5, 1);
  const HTensor x = linear(tracer.input("x", {DType::F32, {rows, width}}), weights[0], HTensor());
  const HTensor y =
      linear(x, weights[1], HTensor()) * linear(x, weights[2], HTensor()) + linear(x, weights[3], HTensor());
  const HTensor loss = reduce_sum(y * y, {0, 1});
  tracer.output("loss", loss);
  const std::vector<HTensor> gradients = gradient(tracer, loss, weights);
  for (size_t i = 0; i < gradients.size(); ++i) tracer.output("gradient" + std::to_string(i), gradients[i]);
  step.program = tracer.take();
  return step;
}

// Returns a micro-batch, whose weight gradients are added to those of earlier micro-batches.
TrainingStep micro_batch(int64_t rows, int64_t in, int64_t out) {
  TrainingStep step;
  Tracer tracer("micro");
  const HTensor w = tracer.parameter("w", {DType::F32, {out, in}}), x = tracer.input("x", {DType::F32, {rows, in}});
  const HTensor y = linear(x, w, HTensor());
  const HTensor loss = reduce_sum(y * y, {0, 1});
  tracer.output("loss", loss);
  const HTensor dw = gradient(tracer, loss, {w}).at(0);
  const TraceScope scope({"w", Phase::optimizer});
  const HTensor sum = tracer.state("sum", {DType::F32, {out, in}}), keep = tracer.input("keep", {DType::Bool, {}});
  tracer.update("sum", select(keep, sum, zeros_like(sum)) + dw);
  step.numbers["w"] = noise({out, in}, 1, 0.2f);
  step.numbers["x"] = noise({rows, in}, 2, 1);
  step.numbers["sum"] = noise({out, in}, 3, 1);
  step.program = tracer.take();
  return step;
}

}  // namespace

TEST_CASE("fused plans: the gradient of a value read three times is one sum") {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{64, 48}, {7, 5}, {130, 200}, {1, 96}}) {
    const TrainingStep step = three_maps(rows, width);
    MapBinding binding(step.numbers), plain_binding(step.numbers);
    const auto executor = make_sequential_executor();
    const auto fused = compile(step.program, &binding, *executor, on("cpu"));
    const auto plain = compile(step.program, &plain_binding, *executor, without("accumulate_products"));
    INFO(print_plan(*fused));
    CHECK(steps_of(*fused, "dot_add") == 2);
    CHECK(steps_of(*plain, "dot_add") == 0);
    CHECK(fused->steps().size() < plain->steps().size());
    CHECK(fused->memory().arena_bytes <= plain->memory().arena_bytes);
    for (const PlanStep& s : fused->steps()) CHECK((s.what != "dot_add" || s.in_place));
    const Values result = run_compiled(step.program, step.numbers, *executor, on("cpu"));
    check_near(result, run_compiled(step.program, step.numbers, *executor, without("accumulate_products")));
    for (const auto& threads : parallel_executors())
      REQUIRE(same_bits(run_compiled(step.program, step.numbers, *threads, on("cpu")), result));
  }
}

TEST_CASE("fused plans: micro-batch gradients accumulate in the state") {
  for (const auto& [rows, in, out] :
       {std::tuple<int64_t, int64_t, int64_t>{64, 392, 196}, {17, 33, 9}, {2048, 64, 48}}) {
    TrainingStep step = micro_batch(rows, in, out);
    for (bool keep : {false, true}) {
      step.numbers["keep"] = cast(HTensor::scalar(keep ? 1.0f : 0.0f), DType::Bool);
      if (!keep)
        step.numbers["sum"] =
            HTensor::from(step.numbers["sum"].shape(), std::vector<float>(static_cast<size_t>(in * out), NAN));
      else
        step.numbers["sum"] = noise({out, in}, 3, 1);
      MapBinding binding(step.numbers);
      const auto executor = make_sequential_executor();
      const auto plan = compile(step.program, &binding, *executor, on("cpu"));
      INFO(print_plan(*plan));
      REQUIRE(steps_of(*plan, "dot_add") == 1);
      for (const PlanStep& s : plan->steps()) {
        CHECK(s.kernel != "copy");
        if (s.what == "dot_add") CHECK((s.target == "sum" && s.in_place));
      }
      check_near(run_compiled(step.program, step.numbers, *executor, on("cpu")),
                 run_compiled(step.program, step.numbers, *executor, without("accumulate_products")));
    }
  }
}

TEST_CASE("fused plans: fused reductions keep the bits") {
  const auto executor = make_sequential_executor();
  size_t fused = 0;
  for (uint32_t seed = 0; seed < 120; ++seed) {
    INFO("seed " << seed);
    const RandomProgram random(seed, 40);
    MapBinding binding(random.numbers());
    const auto plan = compile(random.program(), &binding, *executor, on("cpu"));
    for (const PlanStep& s : plan->steps()) fused += s.kernel == "fused reduce";
    REQUIRE(same_bits(run_compiled(random.program(), random.numbers(), *executor, on("cpu")),
                      run_compiled(random.program(), random.numbers(), *executor, without("fuse_reductions"))));
  }
  CHECK(fused > 20);
}

TEST_CASE("fused plans: the terms of a mean are not stored") {
  Tracer tracer("mean");
  const Shape shape{300, 1000};
  const HTensor x = tracer.input("x", {DType::F32, shape}), y = tracer.input("y", {DType::F32, shape});
  tracer.output("loss", reduce_mean((x - y) * (x - y), {0, 1}));
  const Program program = tracer.take();
  const std::map<std::string, HTensor> numbers{{"x", noise(shape, 1, 1)}, {"y", noise(shape, 2, 1)}};
  const auto executor = make_sequential_executor();
  const auto fused = compile(program, nullptr, *executor, on("cpu")),
             plain = compile(program, nullptr, *executor, without("fuse_reductions"));
  INFO(print_plan(*fused));
  CHECK(plain->memory().arena_bytes >= 300 * 1000 * sizeof(float));
  CHECK(fused->memory().arena_bytes < 64 * 1024);
  const Values result = run_compiled(program, numbers, *executor, on("cpu"));
  CHECK(same_bits(result, run_compiled(program, numbers, *executor, without("fuse_reductions"))));
  for (const auto& threads : parallel_executors())
    CHECK(same_bits(run_compiled(program, numbers, *threads, on("cpu")), result));
}
