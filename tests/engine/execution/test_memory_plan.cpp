#include <catch2/catch.hpp>

#include "engine/execution/memory_plan.hpp"
#include "engine/passes/pass.hpp"
#include "tests/engine/passes/random_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

bool overlap(const MemoryPlan& plan, size_t a, size_t b) {
  const BufferSpan &x = plan.buffers[a], &y = plan.buffers[b];
  const uint64_t from = plan.placement.offsets[a], other = plan.placement.offsets[b];
  return x.bytes && y.bytes && x.first <= y.last && y.first <= x.last && from < other + y.bytes &&
         other < from + x.bytes;
}

std::vector<PlannedStep> planned_steps(const Program& program, uint32_t in_place, uint64_t workspace = 0) {
  std::vector<PlannedStep> steps;
  for (uint32_t i = 0; i < program.nodes.size(); ++i) {
    const Node& node = program.nodes[i];
    if (is_leaf(node.op) || is_constant(node.op) || is_view(program, node)) continue;
    steps.push_back({i, workspace, is_elementwise(node.op) ? in_place : 0,
                     node.callee == "adamw" || node.callee == "sgd" ? static_cast<uint32_t>(node.outputs.size()) : 0});
  }
  return steps;
}

uint32_t all_forward(const std::vector<PlannedStep>& steps) { return static_cast<uint32_t>(steps.size()); }

}  // namespace

TEST_CASE("memory plan: live buffers do not overlap in random programs") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const Program program = RandomProgram(seed, 100).program();
    const auto steps = planned_steps(program, seed % 3 ? 7 : 0, seed % 5 * 40);
    const MemoryPlan plan = plan_memory(program, steps, all_forward(steps));
    REQUIRE(plan.values.size() == program.values.size());
    for (size_t a = 0; a < plan.buffers.size(); ++a) {
      REQUIRE(plan.placement.offsets[a] % kArenaAlignment == 0);
      REQUIRE(plan.placement.offsets[a] + plan.buffers[a].bytes <= plan.placement.bytes);
      for (size_t b = a + 1; b < plan.buffers.size(); ++b) REQUIRE_FALSE(overlap(plan, a, b));
    }
    CHECK(plan.placement.bytes <= plan.unshared_bytes + 64 * plan.buffers.size());
  }
}

TEST_CASE("memory plan: a buffer takes the tightest free gap") {
  // Lifetimes in steps: the first buffer is live throughout, the others one after another.
  const Placement p = place_buffers({{640, 0, 9}, {128, 0, 1}, {64, 0, 1}, {128, 2, 3}, {64, 3, 3}, {0, 0, 9}});
  CHECK(p.offsets == std::vector<uint64_t>{0, 640, 768, 640, 768, 0});
  CHECK(p.bytes == 832);
}

TEST_CASE("memory plan: a chain of in-place steps needs one buffer") {
  Builder b;
  ValueId x = b.apply(Op::neg, {b.input("x", {64})});
  for (int i = 0; i < 5; ++i) x = b.apply(Op::tanh, {x});
  b.output("y", x);
  const auto steps = planned_steps(b.program, 1);
  const MemoryPlan plan = plan_memory(b.program, steps, all_forward(steps));
  CHECK(plan.placement.bytes == 256);
  CHECK(plan.unshared_bytes == 6 * 256);
  CHECK(plan.in_place == std::vector<bool>{false, true, true, true, true, true});
  const auto apart = planned_steps(b.program, 0);
  CHECK(plan_memory(b.program, apart, all_forward(apart)).placement.bytes == 512);
}

TEST_CASE("memory plan: a result replaces the latest of two dying inputs") {
  Builder b;
  const ValueId x = b.input("x", {64}), early = b.apply(Op::neg, {x}), late = b.apply(Op::tanh, {x});
  const ValueId sum = b.apply(Op::add, {early, late});
  b.output("y", b.apply(Op::neg, {sum}));
  const auto steps = planned_steps(b.program, 3);
  const MemoryPlan plan = plan_memory(b.program, steps, all_forward(steps));
  CHECK(plan.values[sum].offset == plan.values[late].offset);
  CHECK(plan.values[sum].offset != plan.values[early].offset);
}

TEST_CASE("memory plan: reshapes, bit casts and contiguous slices are views, strided slices are not") {
  Builder b;
  const ValueId x = b.apply(Op::neg, {b.input("x", {8, 16})});
  const ValueId flat = b.apply(Op::reshape, {x}, AttributeMap().set("shape", std::vector<int64_t>{128}));
  const auto rows = [&](int64_t from, int64_t to, int64_t stride) {
    return b.apply(Op::slice, {x},
                   AttributeMap()
                       .set("starts", std::vector<int64_t>{from, 0})
                       .set("limits", std::vector<int64_t>{to, 16})
                       .set("strides", std::vector<int64_t>{stride, 1}));
  };
  const ValueId part = rows(2, 4, 1), strided = rows(0, 8, 2);
  const ValueId column = b.apply(Op::slice, {x},
                                 AttributeMap()
                                     .set("starts", std::vector<int64_t>{0, 4})
                                     .set("limits", std::vector<int64_t>{8, 8})
                                     .set("strides", std::vector<int64_t>{1, 1}));
  const ValueId words =
      b.apply(Op::bitcast, {x}, AttributeMap().set("dtype", static_cast<int64_t>(DType::U8)));  // [8, 16, 4]
  for (ValueId v : {flat, part, strided, column, words}) b.output("y" + std::to_string(v), v);
  const auto steps = planned_steps(b.program, 0);
  const MemoryPlan plan = plan_memory(b.program, steps, all_forward(steps));
  CHECK(steps.size() == 3);
  CHECK(plan.values[flat].offset == plan.values[x].offset);
  CHECK(plan.values[words].offset == plan.values[x].offset);
  CHECK(plan.values[part].offset == plan.values[x].offset + 2 * 16 * 4);
  CHECK(plan.values[strided].offset >= plan.values[x].offset + 512);
}

TEST_CASE("memory plan: an optimizer writes in place only after the last reader") {
  Builder b;
  const ValueId w = b.parameter("w", {4}), m = b.state("m", {4}), v = b.state("v", {4});
  const ValueId lr = b.input("lr", {}), count = b.input("step", {}, DType::I64), g = b.apply(Op::neg, {w});
  b.scope("optimizer/w");
  const auto next = b.call_all("adamw", {w, g, m, v, lr, count});
  b.update("w", next[0]);
  b.update("m", next[1]);
  b.update("v", next[2]);
  const auto state_of = [&](const MemoryPlan& plan, ValueId value) {
    return plan.values[value].place == Place::state ? plan.states[plan.values[value].index].name : "";
  };
  SECTION("in place") {
    const auto steps = planned_steps(b.program, 7);
    const MemoryPlan plan = plan_memory(b.program, steps, 1);
    CHECK(state_of(plan, next[0]) == "w");
    CHECK(state_of(plan, next[1]) == "m");
    CHECK(state_of(plan, next[2]) == "v");
    CHECK(plan.commits.empty());
  }
  SECTION("a later reader of the old weights keeps them until the end") {
    b.output("late", b.apply(Op::abs, {w}));
    const auto steps = planned_steps(b.program, 7);
    const MemoryPlan plan = plan_memory(b.program, steps, 1);
    CHECK(state_of(plan, next[0]).empty());
    CHECK(state_of(plan, next[1]) == "m");
    REQUIRE(plan.commits.size() == 1);
    CHECK(plan.states[plan.commits[0].to.index].name == "w");
  }
  SECTION("moments that exchange values are copied") {
    b.program.updates[1].value = next[2];
    b.program.updates[2].value = next[1];
    const auto steps = planned_steps(b.program, 7);
    const MemoryPlan plan = plan_memory(b.program, steps, 1);
    CHECK(plan.commits.size() == 2);
  }
  SECTION("the forward pass changes no state") {
    const auto steps = planned_steps(b.program, 7);
    CHECK(plan_memory(b.program, steps, 2).commits.empty());  // all steps are forward
    b.output("after", b.apply(Op::abs, {g}));
    const auto more = planned_steps(b.program, 7);
    CHECK(plan_memory(b.program, more, 2).commits.size() == 3);  // the update comes before the update phase
  }
}
