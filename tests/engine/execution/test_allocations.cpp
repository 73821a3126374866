#include <catch2/catch.hpp>

#include "tests/engine/execution/interposed_malloc.hpp"
#include "tests/engine/execution/training_program.hpp"

namespace harmonics::engine::testing {

namespace {

uint64_t allocations_of(Executable& executable, const void* const* inputs, int steps) {
  for (int i = 0; i < 50; ++i) executable.run(inputs);
  start_counting();
  for (int i = 0; i < steps; ++i) executable.run(inputs);
  return stop_counting();
}

}  // namespace

TEST_CASE("allocations: the counter works") {
  if (!kCountsAllocations) return;
  start_counting();
  const HTensor t(DType::F32, {4});
  CHECK(stop_counting() >= 2);
}

TEST_CASE("allocations: a steady reference step has none in the plan") {
  if (!kCountsAllocations) return;
  Builder b;
  const ValueId x = b.input("x", {3, 4}), w = b.parameter("w", {3, 4});
  b.update("w", b.apply(Op::add, {b.apply(Op::mul, {x, w}), x}));
  b.output("y", x);
  MapBinding binding;
  const auto executor = make_team_executor(2);
  CompileOptions options;
  options.device = "reference";
  options.fuse = false;  // the reference runs a fused chain in temporary memory
  const auto executable = compile(b.program, &binding, *executor, options);
  const HTensor numbers(DType::F32, {3, 4});
  const void* inputs[1] = {numbers.bytes()};
  CHECK(allocations_of(*executable, inputs, 100) == 0);
}

// oneDNN makes small allocations in every execute(); their number must not grow.
TEST_CASE("allocations: a steady CPU training step has none outside oneDNN") {
  if (!kCountsAllocations) return;
  const TrainingStep step = training_step(16, {64, 32, 10});
  MapBinding binding(step.numbers);
  for (const bool parallel : {false, true}) {
    const auto executor = parallel ? make_team_executor(2) : make_sequential_executor();
    CompileOptions options;
    options.device = "cpu";
    const auto executable = compile(step.program, &binding, *executor, options);
    uint64_t onednn = 0;
    for (const PlanStep& s : executable->steps()) onednn += s.kernel.rfind("oneDNN", 0) == 0 ? s.phases * s.parts : 0;
    const auto inputs = input_pointers(*executable, step.numbers);
    constexpr uint64_t kSteps = 100, kPerExecute = 8;
    const uint64_t counted = allocations_of(*executable, inputs.data(), kSteps);
    INFO("parallel " << parallel << ", " << counted << " allocations in " << kSteps << " steps with " << onednn
                     << " oneDNN parts each");
    CHECK(counted <= kSteps * onednn * kPerExecute);
  }
}

TEST_CASE("allocations: CPU inference without oneDNN has none") {
  if (!kCountsAllocations) return;
  Builder b;
  ValueId x = b.input("x", {256, 512});
  const ValueId w = b.parameter("w", {512});
  for (int i = 0; i < 4; ++i) {
    x = b.apply(Op::tanh,
                {b.apply(Op::add, {x, b.apply(Op::broadcast, {w},
                                              AttributeMap().set("shape", std::vector<int64_t>{256, 512}))})});
    x = b.call("softmax", {x});
  }
  b.output("y", x);
  MapBinding binding;
  const HTensor numbers = noise({256, 512}, 5, 1.0f);
  const void* inputs[1] = {numbers.bytes()};
  for (const auto& executor : parallel_executors()) {
    CompileOptions options;
    options.device = "cpu";
    const auto executable = compile(b.program, &binding, *executor, options);
    for (const PlanStep& s : executable->steps()) REQUIRE(s.kernel != "reference");
    CHECK(allocations_of(*executable, inputs, 200) == 0);
  }
}

}  // namespace harmonics::engine::testing
