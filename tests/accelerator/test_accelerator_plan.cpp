// Compares programs on an accelerator with the CPU.
#include <catch2/catch.hpp>
#include <algorithm>
#include <chrono>

#include "engine/execution/kernel_source.hpp"
#include "tests/engine/execution/arriving.hpp"
#include "tests/engine/execution/cached_decoding.hpp"
#include "tests/engine/execution/distance.hpp"
#include "tests/engine/execution/indexed_program.hpp"
#include "tests/engine/execution/wide_check.hpp"
#include "tests/accelerator/device.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("accelerator: a training step equals the CPU's without host steps") {
  if (!opens_accelerator()) return;
  const auto executor = make_sequential_executor();
  for (const char* optimizer : {"adamw", "sgd"}) {
    INFO(optimizer);
    const TrainingStep step = training_step(17, {33, 24, 10}, optimizer);
    CHECK(distance(run_compiled(step.program, step.numbers, *executor, on(accelerator())),
                   run_compiled(step.program, step.numbers, *executor, on("cpu"))) < 2e-4);
    MapBinding binding(step.numbers);
    const auto plan = compile(step.program, &binding, *executor, on(accelerator()));
    for (const PlanStep& s : plan->steps()) {
      INFO(s.what);
      CHECK_FALSE(s.on_host);
    }
  }
}

TEST_CASE("accelerator: random programs agree with the interpreter") {
  if (!opens_accelerator()) return;
  const auto executor = make_sequential_executor();
  int apart = 0;
  // few seeds, since a rounding error may change the result of floor or sign by a whole step
  for (uint32_t seed = 0; seed < 25; ++seed) {
    const RandomProgram random(seed, 20);
    apart += !(distance(run_compiled(random.program(), random.numbers(), *executor, on(accelerator())),
                        interpret(random.program(), random.numbers())) < 1e-3);
  }
  CHECK(apart <= 2);
}

TEST_CASE("accelerator: exact programs have the bits of the interpreter") {
  if (!opens_accelerator()) return;
  check_wide_programs({.seeds = 16, .size = 20}, *make_sequential_executor(), on(accelerator()));
}

TEST_CASE("accelerator fused_reduce: same bits as a stored chain") {
  if (!opens_accelerator()) return;
  const auto executor = make_sequential_executor();
  for (const DType dtype : {DType::F32, DType::BF16})
    for (const Shape& shape : {Shape{5, 7}, Shape{300, 9}, Shape{3, 500}}) {
      INFO(dtype_name(dtype) << " " << shape.str());
      Tracer tracer("chain");
      const HTensor x = tracer.input("x", {dtype, shape}), row = tracer.input("row", {dtype, {shape[1]}});
      const HTensor apart = x - row, square = apart * apart;
      tracer.output("columns", reduce_sum(square, {0}));
      tracer.output("apart", apart);
      tracer.output("rows", reduce_max(tanh(x) * row, {1}));
      const Program program = tracer.take();
      const std::map<std::string, HTensor> numbers{{"x", cast(noise(shape, 5, 2), dtype)},
                                                   {"row", cast(noise({shape[1]}, 6, 1), dtype)}};
      CompileOptions stored = on(accelerator());
      stored.disabled = {"fuse_reductions"};
      MapBinding binding(numbers);
      const auto plan = compile(program, &binding, *executor, on(accelerator()));
      for (const PlanStep& s : plan->steps()) UNSCOPED_INFO(s.what << ": " << s.kernel);
      CHECK(std::any_of(plan->steps().begin(), plan->steps().end(),
                        [](const PlanStep& s) { return s.kernel == "chain and reduce"; }));
      const Values joined = run_compiled(program, numbers, *executor, on(accelerator())),
                   apart_from_it = run_compiled(program, numbers, *executor, stored);
      REQUIRE(joined.size() == apart_from_it.size());
      for (size_t i = 0; i < joined.size(); ++i) CHECK(same_bits(joined[i], apart_from_it[i]));
    }
}

TEST_CASE("accelerator: random numbers have the CPU's bits") {
  if (!opens_accelerator()) return;
  Tracer tracer("random");
  const HTensor counter = tracer.input("counter", {DType::I64, {2}});
  tracer.output(
      "y", call1("random_uniform", {counter}, Attributes().set("stream", int64_t{-77}).set("shape", Shape{13, 7})));
  const Program program = tracer.take();
  const std::map<std::string, HTensor> numbers{{"counter", HTensor::from<int64_t>({2}, {123456789, 1LL << 40})}};
  const auto executor = make_sequential_executor();
  CHECK(same_bits(run_compiled(program, numbers, *executor, on(accelerator())),
                  run_compiled(program, numbers, *executor, on("cpu"))));
}

TEST_CASE("accelerator: a too large buffer is rejected with the maximum") {
  if (!opens_accelerator()) return;
  Tracer tracer("large");
  const HTensor x = tracer.input("x", {DType::F32, {1 << 30}});
  HTensor wide = broadcast(reshape(x, {1, 1 << 30}), {4096, 1 << 30});
  tracer.output("y", reduce_sum(wide, {0, 1}));
  const auto executor = make_sequential_executor();
  try {
    compile(tracer.take(), nullptr, *executor, on(accelerator()));
    FAIL("a plan of terabytes was made");
  } catch (const Error& e) {
    INFO(e.what());
    CHECK(e.kind() == ErrorKind::Device);
  }
}

TEST_CASE("accelerator: steps are timed only on profiling queues") {
  if (!opens_accelerator()) return;
  const auto executor = make_sequential_executor();
  const TrainingStep step = training_step(64, {784, 256, 10});
  MapBinding binding(step.numbers), apart(step.numbers);
  const auto plan = compile(step.program, &binding, *executor, on(accelerator())),
             other = compile(step.program, &apart, *executor, on(accelerator()));
  const auto inputs = input_pointers(*plan, step.numbers);
  PlanTimes times;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    plan->run_timed(inputs.data(), times);
    const auto passed =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
    CHECK(times.by_device);
    REQUIRE(times.stamps.size() == plan->steps().size() + 1);
    CHECK(std::is_sorted(times.stamps.begin(), times.stamps.end()));
    CHECK(times.stamps.back() > times.stamps.front());
    CHECK(static_cast<int64_t>(times.stamps.back() - times.stamps.front()) <= passed);
    plan->run(inputs.data());  // on the queue without profiling
  }
  for (int i = 0; i < 6; ++i) other->run(inputs.data());
  for (const NamedValue& output : step.program.outputs)
    CHECK(same_bits(plan->output(output.name), other->output(output.name)));
}

TEST_CASE("accelerator: prefetched batches give the same bits") {
  if (!opens_accelerator()) return;
  const auto executor = make_sequential_executor();
  const TrainingStep step = training_step(64, {784, 32, 10});
  CHECK(same(trained_on_batches(step, 12, *executor, on(accelerator()), true),
             trained_on_batches(step, 12, *executor, on(accelerator()), false)));
}

TEST_CASE("accelerator: lengths, windows, positions and caches have kernels") {
  if (!opens_accelerator()) return;
  Tracer tracer("sequence");
  const HTensor q = tracer.input("q", {DType::F32, {2, 3, 4, 8}}), k = tracer.input("k", {DType::F32, {2, 5, 2, 8}});
  const HTensor added = tracer.input("added", {DType::F32, {2, 3, 2, 8}}),
                start = tracer.input("start", {DType::I32, {2}}), lengths = tracer.input("lengths", {DType::I32, {2}}),
                positions = tracer.input("positions", {DType::I32, {2, 3}});
  const Attributes rows = Attributes().set("positions_first", true);
  const HTensor turned = call1("rope", {q, positions}, Attributes(rows).set("operands", "positions"));
  const HTensor keys = call1("cache_append", {k, added, start});
  const Attributes seen = Attributes(rows).set("operands", "lengths").set("causal", true).set("window", int64_t{3});
  tracer.output("y", call("attention", {turned, keys, keys, lengths}, seen).at(0));
  const Program program = tracer.take();
  std::map<std::string, HTensor> numbers{{"start", HTensor::from<int32_t>({2}, {0, 2})},
                                         {"lengths", HTensor::from<int32_t>({2}, {3, 5})},
                                         {"positions", HTensor::from<int32_t>({2, 3}, {0, 1, 2, 2, 3, 4})}};
  for (const auto& [name, shape] :
       {std::pair<const char*, Shape>{"q", {2, 3, 4, 8}}, {"k", {2, 5, 2, 8}}, {"added", {2, 3, 2, 8}}})
    numbers[name] = noise(shape, 7, 1.0f);
  const auto executor = make_sequential_executor();
  CHECK(distance(run_compiled(program, numbers, *executor, on(accelerator())), interpret(program, numbers)) < 1e-4);

  KernelSource source(accelerator(), Registry::global());
  for (const Node& node : program.nodes)
    if (node.op == Op::call) {
      INFO(node.callee);
      CHECK(source.find(program, node) != nullptr);
    }
  const TensorType x{DType::F32, {2, 3, 4, 8}}, row{DType::F32, {2, 4, 3}}, given{DType::I32, {2}};
  CHECK(source.find("attention_grad", AttributeMap().set("operands", "lengths").set("positions_first", true),
                    {x, x, x, x, row, x, given}, {x, x, x}) != nullptr);
}

TEST_CASE("accelerator: caches of f32, f16, bf16 and q8_0 have kernels that append in place and attend") {
  if (!opens_accelerator()) return;
  const auto executor = make_sequential_executor();
  check_cached_decoding(*executor, on(accelerator()));
  check_paged_decoding(*executor, on(accelerator()));
}

TEST_CASE("accelerator: sorts, positions in several axes, windows, bits and angles equal the reference") {
  if (!opens_accelerator()) return;
  const auto executor = make_sequential_executor();
  check_indexed_program(*executor, on(accelerator()));
}
