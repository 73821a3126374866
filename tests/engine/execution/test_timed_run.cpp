// Timed runs give the results of untimed ones. Runs with empty kernels change nothing.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>

#include "engine/execution/work.hpp"
#include "tests/engine/execution/training_program.hpp"

namespace harmonics::engine::testing {

TEST_CASE("timed run: same results, with timestamps") {
  const TrainingStep step = training_step(64, {64, 32, 10});
  for (const int threads : {1, 2}) {
    MapBinding plain(step.numbers), timed(step.numbers);
    const auto executor = make_team_executor(threads);
    const auto a = compile(step.program, &plain, *executor), b = compile(step.program, &timed, *executor);
    const auto inputs = input_pointers(*a, step.numbers);
    PlanTimes times;
    times.wants_parts = true;
    for (int i = 0; i < 3; ++i) {
      a->run(inputs.data());
      b->run_timed(inputs.data(), times);
    }
    for (const NamedValue& output : a->program().outputs) {
      const HTensor &x = a->output(output.name), &y = b->output(output.name);
      CHECK(std::memcmp(x.bytes(), y.bytes(), type_of(x).bytes()) == 0);
    }
    REQUIRE(times.stamps.size() == b->steps().size() + 1);
    CHECK(std::is_sorted(times.stamps.begin(), times.stamps.end()));
    size_t parts = 0;
    for (const PlanStep& s : b->steps()) parts += s.phases;
    CHECK(times.parts.size() >= parts);
    for (const PlanTimes::Part& part : times.parts) {
      CHECK(part.begin >= times.stamps[part.step]);
      CHECK(part.end <= times.stamps[part.step + 1]);
      CHECK(part.thread < static_cast<uint32_t>(threads));
    }
  }
}

TEST_CASE("updates run their parts in reverse order in every other run, with the same results") {
  const TrainingStep step = training_step(1, {784, 392, 10});
  std::vector<std::vector<std::vector<uint32_t>>> orders;  // by run and step
  const auto executor = make_sequential_executor();
  MapBinding binding(step.numbers);
  const auto plan = compile(step.program, &binding, *executor, on("cpu"));
  const auto inputs = input_pointers(*plan, step.numbers);
  for (int run = 0; run < 3; ++run) {
    PlanTimes times;
    times.wants_parts = true;
    plan->run_timed(inputs.data(), times);
    orders.emplace_back(plan->steps().size());
    for (const PlanTimes::Part& part : times.parts)
      if (part.phase == 0) orders.back()[part.step].push_back(part.part);
  }
  size_t reversed = 0;
  for (size_t i = 0; i < plan->steps().size(); ++i) {
    const bool updates = plan->steps()[i].scope.rfind("optimizer", 0) == 0;
    INFO(plan->steps()[i].what << " " << plan->steps()[i].scope);
    CHECK(std::is_sorted(orders[0][i].begin(), orders[0][i].end()));
    CHECK(orders[2][i] == orders[0][i]);
    std::vector<uint32_t> back = orders[1][i];
    if (updates) std::reverse(back.begin(), back.end());
    CHECK(back == orders[0][i]);
    reversed += updates && back.size() > 1;
  }
  CHECK(reversed >= 1);
}

TEST_CASE("empty run: changes nothing") {
  const TrainingStep step = training_step(16, {64, 32, 10});
  MapBinding binding(step.numbers);
  const auto executor = make_sequential_executor();
  const auto executable = compile(step.program, &binding, *executor);
  const auto inputs = input_pointers(*executable, step.numbers);
  executable->run(inputs.data());
  const HTensor& loss = executable->output(executable->program().outputs.front().name);
  std::vector<std::byte> before(type_of(loss).bytes());
  std::memcpy(before.data(), loss.bytes(), before.size());
  executable->run_empty(inputs.data());
  CHECK(std::memcmp(before.data(), loss.bytes(), before.size()) == 0);
  executable->run(inputs.data());  // the plan still works
  CHECK(std::memcmp(before.data(), loss.bytes(), before.size()) != 0);
}

namespace {

// Returns the work of the program's only call.
Work work_of_call(const Program& program) {
  for (const Node& node : program.nodes)
    if (node.op == Op::call) return work_of(program, node);
  return {};
}

}  // namespace

TEST_CASE("work: a call counts as its body") {
  Tracer tracer("work");
  const HTensor x = tracer.input("x", {DType::F32, {8, 32}}), w = tracer.input("w", {DType::F32, {16, 32}}),
                bias = tracer.input("bias", {DType::F32, {16}});
  tracer.output("y", call1("linear", {x, w, bias}));
  const Program program = tracer.take();
  const Work work = work_of_call(program);
  CHECK(work.products == 2 * 8 * 32 * 16);
  CHECK(work.other == 8 * 16);
  CHECK(work.bytes == 4 * (8 * 32 + 16 * 32 + 16 + 8 * 16));
  CHECK(work_of(program, program.nodes.front()).bytes == 0);  // an input counts no work
}

TEST_CASE("work: causal attention excludes masked products") {
  const auto products = [](bool causal) {
    Tracer tracer("work");
    const HTensor q = tracer.input("q", {DType::F32, {2, 4, 64, 16}});
    tracer.output("y", call("attention", {q, q, q}, Attributes().set("causal", causal)).at(0));
    return work_of_call(tracer.take()).products;
  };
  CHECK(products(false) == 2.0 * 2 * (2 * 4 * 64 * 64 * 16));
  CHECK(products(true) == products(false) / 2);
}

}  // namespace harmonics::engine::testing
