// The device's errors when CUDA fails, and captured work.
#include "tests/cuda/emulated_device.hpp"
#include "tests/engine/execution/wide_check.hpp"

#include "engine/execution/device_memory.hpp"
#include "engine/plugin/registry.hpp"
#include "tests/engine/execution/arriving.hpp"
#include "tests/engine/execution/indexed_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::cuda;
using namespace harmonics::cuda::testing;

namespace {

Machine machine() { return {open_driver(), open_compiler()}; }

}  // namespace

TEST_CASE("cuda: a missing device reports the reason") {
  const FreshSettings fresh;
  emulated::settings().unavailable = "no CUDA device: no NVIDIA driver is installed";
  CHECK_THROWS_WITH(machine(), "no CUDA device: no NVIDIA driver is installed");
}

TEST_CASE("cuda: out of memory reports bytes and a remedy") {
  const FreshSettings fresh;
  emulated::settings().memory = 1000;
  Machine own = machine();
  CHECK_THROWS_WITH(own.allocate(5000),
                    "its memory is full: 5000 bytes are wanted, 1000 of 1000 are free; take a smaller batch, or end "
                    "what else runs there");
  emulated::settings().fails["allocate"] = 999;
  CHECK_THROWS_WITH(own.allocate(5), "CUDA could not give memory: some error (999)");
}

TEST_CASE("cuda: recompiling a graph reuses released memory") {
  const FreshSettings fresh;
  EmulatedDevice with;
  const auto graph = [&](int64_t rows) {
    Tracer tracer("square");
    const HTensor x = tracer.input("x", {DType::F32, {rows, 300}});
    tracer.output("y", reduce_sum(dot(x, x, {1}, {1}), {0, 1}));
    return compile(tracer.take(), nullptr, *with.executor, with.options());
  };
  const auto serving = graph(100);
  auto other = graph(90);
  const int before = emulated::settings().allocations;
  CHECK(before > 0);
  for (int i = 0; i < 3; ++i) {
    other.reset();
    other = graph(90);
  }
  CHECK(emulated::settings().allocations == before);
  const HTensor x = HTensor::from(Shape{90, 300}, std::vector<float>(27000, 1.0f));
  other->run(harmonics::engine::testing::input_pointers(*other, {{"x", x}}).data());
  CHECK(other->output("y").data<float>()[0] == 90.0f * 90.0f * 300.0f);
}

TEST_CASE("cuda: a failed launch is reported by its call") {
  const FreshSettings fresh;
  Machine own = machine();
  emulated::settings().fails["launch"] = emulated::kLaunchFailure;
  Work work(own);
  work.over(10, fill_function(4), {{0}}, FillParameters{10, 0});
  void* stream = nullptr;
  REQUIRE(own.driver().open_stream(&stream) == 0);
  std::vector<float> numbers(10);
  const hx_place place{reinterpret_cast<uint64_t>(numbers.data()), 0};
  hx_kernel kernel{};
  kernel.struct_size = sizeof kernel;
  answer(kernel, std::move(work), "fill");
  CHECK(kernel.enqueue(kernel.context, static_cast<hx_queue*>(stream), &place) == HX_ERROR);
  kernel.destroy(kernel.context);
  CHECK(std::string(harmonics_api()->last_error(nullptr)) ==
        "CUDA could not start a kernel: unspecified launch failure (719)");
  own.driver().close_stream(stream);
}

TEST_CASE("cuda: captured work is replayed with its addresses, not run during capture") {
  const FreshSettings fresh;
  Machine own = machine();
  std::vector<float> numbers(600, 0), copied(600, 0);
  const hx_place places[] = {{reinterpret_cast<uint64_t>(numbers.data()), 0},
                             {reinterpret_cast<uint64_t>(copied.data()), 0}};
  Work work(own);
  uint64_t bits = 0;
  REQUIRE(element_bits(HX_F32, 2.5, bits));
  work.over(600, fill_function(4), {{0}}, FillParameters{600, bits});
  work.copy({1}, {0}, 600 * sizeof(float));
  void *stream = nullptr, *graph = nullptr;
  REQUIRE(own.driver().open_stream(&stream) == 0);
  REQUIRE(own.driver().begin_capture(stream) == 0);
  work.enqueue(static_cast<hx_queue*>(stream), places);
  REQUIRE(own.driver().end_capture(stream, &graph) == 0);
  REQUIRE(own.driver().synchronize(stream) == 0);
  CHECK(copied[0] == 0);
  for (int again = 0; again < 2; ++again) {
    std::fill(copied.begin(), copied.end(), 0.0f);
    REQUIRE(own.driver().launch_graph(graph, stream) == 0);
    REQUIRE(own.driver().synchronize(stream) == 0);
    CHECK(copied == std::vector<float>(600, 2.5f));
  }
  own.driver().release_graph(graph);
  own.driver().close_stream(stream);
}

namespace {

std::map<std::string, HTensor> trained(const harmonics::engine::testing::TrainingStep& step, int steps,
                                       Executor& executor, const CompileOptions& options) {
  ParameterStore store;
  harmonics::engine::testing::declare(store, step);
  const auto plan = compile(step.program, &store, executor, options);
  const auto inputs = harmonics::engine::testing::input_pointers(*plan, step.numbers);
  for (int i = 0; i < steps; ++i) plan->run(inputs.data());
  return harmonics::engine::testing::all_of(store);
}

}  // namespace

TEST_CASE("cuda: a training step is captured on its second run") {
  const FreshSettings fresh;
  EmulatedDevice with;
  const auto step = harmonics::engine::testing::training_step(16, {24, 32, 10});
  CompileOptions cpu;
  const auto meant = trained(step, 5, *with.executor, cpu);
  for (const bool records : {true, false}) {
    INFO(records);
    emulated::settings() = {};
    if (!records) emulated::settings().fails["end_capture"] = 901;
    const auto given = trained(step, 5, *with.executor, with.options());
    CHECK((emulated::settings().graphs >= 4) == records);  // five runs; the first is not captured
    for (const auto& [name, tensor] : meant) {
      INFO(name);
      const HTensor& other = given.at(name);
      if (tensor.dtype() != DType::F32) continue;
      for (uint64_t i = 0; i < static_cast<uint64_t>(tensor.size()); ++i)
        REQUIRE(other.data<float>()[i] == Approx(tensor.data<float>()[i]).margin(1e-4));
    }
  }
}

TEST_CASE("cuda: a step with a checked loss is one graph and changes nothing if it is not finite") {
  const FreshSettings fresh;
  const auto step = harmonics::engine::testing::training_step(16, {24, 32, 10});
  const auto train = [&](EmulatedDevice& with, bool halves) {
    ParameterStore store;
    harmonics::engine::testing::declare(store, step);
    const auto plan = compile(step.program, &store, *with.executor, with.options());
    const float* loss = plan->output("loss").data<float>();
    HTensor bad = harmonics::engine::testing::copy_of(step.numbers.at("x"));
    bad.mutable_data<float>()[7] = INFINITY;
    auto numbers = step.numbers;
    for (int i = 0; i < 7; ++i) {
      numbers["x"] = i == 0 || i == 4 ? bad : step.numbers.at("x");  // immediate, and in a graph
      const auto inputs = harmonics::engine::testing::input_pointers(*plan, numbers);
      const auto before = harmonics::engine::testing::all_of(store);
      if (halves) {
        plan->run_forward(inputs.data());
        if (std::isfinite(*loss)) plan->run_rest(inputs.data());
      } else {
        const bool went = plan->run_if_finite(inputs.data(), loss);
        CHECK(went == (i != 0 && i != 4));
      }
      CHECK(std::isfinite(*loss) == (i != 0 && i != 4));
      CHECK(harmonics::engine::testing::same(harmonics::engine::testing::all_of(store), before) == (i == 0 || i == 4));
    }
    return harmonics::engine::testing::all_of(store);
  };
  EmulatedDevice halved;
  const auto meant = train(halved, true);
  CHECK(emulated::settings().awaited == 0);
  for (const bool records : {true, false}) {
    INFO(records);
    EmulatedDevice with;
    emulated::settings() = {};
    if (!records) emulated::settings().fails["end_capture"] = 901;
    CHECK(harmonics::engine::testing::same(train(with, false), meant));
    CHECK(emulated::settings().graphs == (records ? 6 : 0));
    CHECK(emulated::settings().awaited == 7);
  }
  EmulatedDevice broken;
  emulated::settings() = {};
  emulated::settings().fails["await_event"] = emulated::kLaunchFailure;
  CHECK_THROWS_WITH(train(broken, false),
                    Catch::Contains("device 'emulated' could not finish what is queued: CUDA could not finish what is "
                                    "queued: unspecified launch failure (719)"));
}

TEST_CASE("cuda: steps are timed by events in execution order") {
  const FreshSettings fresh;
  EmulatedDevice with;
  const auto step = harmonics::engine::testing::training_step(16, {24, 32, 10});
  ParameterStore store;
  harmonics::engine::testing::declare(store, step);
  const auto plan = compile(step.program, &store, *with.executor, with.options());
  const auto inputs = harmonics::engine::testing::input_pointers(*plan, step.numbers);
  PlanTimes times;
  plan->run_timed(inputs.data(), times);
  CHECK(times.by_device);
  REQUIRE(times.stamps.size() == plan->steps().size() + 1);
  CHECK(std::is_sorted(times.stamps.begin(), times.stamps.end()));
  for (size_t i = 0; i < plan->steps().size(); ++i) {
    INFO(plan->steps()[i].what);
    if (plan->steps()[i].kernel != "view") CHECK(times.stamps[i + 1] > times.stamps[i]);
  }
  emulated::settings().fails["elapsed"] = emulated::kLaunchFailure;
  CHECK_THROWS_WITH(plan->run_timed(inputs.data(), times),
                    Catch::Contains("could not measure the time between events: CUDA could not tell the time between "
                                    "two events: unspecified launch failure (719)"));
}

TEST_CASE("cuda: prefetched batches are complete before the step that takes them") {
  const FreshSettings fresh;
  EmulatedDevice with;
  const auto step = harmonics::engine::testing::training_step(16, {24, 32, 10});
  const auto expected = harmonics::engine::testing::trained_on_batches(step, 6, *with.executor, with.options(), false);
  CHECK(emulated::settings().waits == 0);
  for (const bool hurries : {false, true}) {
    INFO(hurries);
    emulated::settings() = {};
    emulated::settings().hurries = hurries;
    const auto given = harmonics::engine::testing::trained_on_batches(step, 6, *with.executor, with.options(), true);
    CHECK(emulated::settings().waits == 6);
    CHECK(emulated::settings().graphs == 5);  // six runs; the first is not captured
    CHECK(harmonics::engine::testing::same(given, expected));
  }
}

TEST_CASE("cuda: exact programs have the bits of the interpreter") {
  EmulatedDevice device;
  engine::testing::check_wide_programs({.seeds = 60, .size = 20}, *device.executor, device.options());
}

TEST_CASE("cuda: sorts, positions in several axes, windows, bits and angles equal the reference") {
  const FreshSettings fresh;
  EmulatedDevice device;
  harmonics::engine::testing::check_indexed_program(*device.executor, device.options());
}
