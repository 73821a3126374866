// Compares whole programs on the CPU device with the interpreter, bitwise equal for any number of threads.
#include <catch2/catch.hpp>

#include "engine/execution/work.hpp"
#include "tests/engine/execution/distance.hpp"
#include "tests/engine/execution/training_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("the CPU device agrees with the interpreter on a training step") {
  const TrainingStep step = training_step(17, {33, 24, 10});
  const Values expected = interpret(step.program, step.numbers);
  const auto executor = make_sequential_executor();
  CHECK(distance(run_compiled(step.program, step.numbers, *executor, on("cpu")), expected) < 2e-4);
  CHECK(same_bits(run_compiled(step.program, step.numbers, *executor, on("reference")), expected));
}

TEST_CASE("the CPU device agrees with the interpreter on random programs") {
  const auto executor = make_sequential_executor();
  int apart = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    // With floor, sign or comparisons, a rounding error may become a whole step. The test above therefore compares the
    // few programs without kernels that round differently.
    const RandomProgram random(seed, 25);
    const Values expected = interpret(random.program(), random.numbers());
    const double d = distance(run_compiled(random.program(), random.numbers(), *executor, on("cpu")), expected);
    apart += !(d < 1e-3);
  }
  CHECK(apart <= 7);
}

TEST_CASE("results have the same bits for one thread, two threads and a team") {
  const TrainingStep step = training_step(64, {784, 392, 196, 10});
  const auto one = make_sequential_executor();
  const Values expected = run_compiled(step.program, step.numbers, *one, on("cpu"));
  std::vector<std::unique_ptr<Executor>> others = parallel_executors();
  others.push_back(make_team_executor(3));
  for (const auto& executor : others)
    for (int repeat = 0; repeat < 3; ++repeat)
      REQUIRE(same_bits(run_compiled(step.program, step.numbers, *executor, on("cpu")), expected));
}

TEST_CASE("a training step updates in place and keeps few buffers") {
  const TrainingStep step = training_step(64, {784, 392, 196, 10});
  MapBinding binding(step.numbers);
  const auto executor = make_sequential_executor();
  const auto executable = compile(step.program, &binding, *executor, on("cpu"));
  INFO(print_plan(*executable));
  const MemoryReport memory = executable->memory();
  CHECK(memory.arena_bytes < memory.unshared_bytes);
  CHECK(memory.state_bytes == 3 * 4 * (784 * 392 + 392 + 392 * 196 + 196 + 196 * 10 + 10));
  for (const PlanStep& s : executable->steps()) CHECK(s.kernel != "copy");
  size_t updates = 0, whole = 0;
  for (const PlanStep& s : executable->steps()) {
    updates += (s.what == "adamw" || s.what == "update_outer") && !s.target.empty() && s.in_place;
    whole += s.what == "linear+relu";
  }
  CHECK(updates == 6);
  CHECK(whole == 2);
}

TEST_CASE("a state changed by update_slice keeps its memory, and a step moves the slice only") {
  const auto counting = [](const Shape& shape) {
    std::vector<float> values(static_cast<size_t>(shape.count()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    return HTensor::from(shape, values);
  };
  uint64_t arena = 0;
  for (const int64_t capacity : {64, 4096}) {
    INFO(capacity);
    Builder b;
    const ValueId cache = b.state("cache", {4, capacity, 8});
    const ValueId fresh = b.input("fresh", {4, 1, 8}), at = b.input("at", {3}, DType::I64);
    const ValueId next = b.apply(Op::update_slice, {cache, fresh, at});
    b.update("cache", next);
    AttributeMap sizes;
    sizes.set("sizes", std::vector<int64_t>{4, 2, 8});
    b.output("near", b.apply(Op::dynamic_slice, {next, at}, sizes));
    std::map<std::string, HTensor> numbers;
    numbers["fresh"] = neg(counting({4, 1, 8}));
    numbers["cache"] = counting({4, capacity, 8});

    MapBinding binding(numbers);
    const TensorType type{DType::F32, {4, capacity, 8}};
    const void* const memory = binding.parameter("cache", type);
    const auto executor = make_sequential_executor();
    const auto executable = compile(b.program, &binding, *executor, on("cpu"));
    INFO(print_plan(*executable));
    for (const PlanStep& s : executable->steps()) {
      CHECK(s.kernel != "copy");
      CHECK(s.kernel != "reference");
      if (s.what == "update_slice") CHECK((s.in_place && s.target == "cache"));
    }
    CHECK(executable->memory().arena_bytes < type.bytes());
    if (arena) CHECK(executable->memory().arena_bytes == arena);
    arena = executable->memory().arena_bytes;
    const Node& update = b.program.nodes.at(3);
    REQUIRE(update.op == Op::update_slice);
    CHECK(work_of(b.program, update).bytes == 2 * 4 * 8 * 4 + 3 * 8);

    for (const int64_t position : {0, 7, 63, 8}) {
      numbers["at"] = HTensor::from({3}, std::vector<int64_t>{0, position, 0});
      const Values expected = interpret(b.program, numbers);
      executable->run(input_pointers(*executable, numbers).data());
      CHECK(same_bits(executable->output("near"), expected.at(0)));
      CHECK(same_bits(binding.tensor("cache", type), expected.at(1)));
      CHECK(binding.parameter("cache", type) == memory);
      numbers["cache"] = expected.at(1);
    }
  }
}
