// The order of steps for several threads keeps every dependency, and makes independent small steps neighbours.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <random>

#include "engine/execution/step_order.hpp"
#include "engine/passes/pass.hpp"
#include "tests/engine/passes/random_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::vector<PlannedStep> steps_of(const Program& program, uint64_t workspace = 0) {
  std::vector<PlannedStep> steps;
  for (uint32_t i = 0; i < program.nodes.size(); ++i) {
    const Node& node = program.nodes[i];
    if (!is_leaf(node.op) && !is_constant(node.op) && !is_view(program, node)) steps.push_back({i, workspace});
  }
  return steps;
}

std::vector<uint32_t> numbers_of(const std::vector<OrderedStep>& order) {
  std::vector<uint32_t> all;
  for (const OrderedStep& o : order) all.push_back(o.step);
  return all;
}

// Two chains of three steps each on one input, and their sum.
struct TwoChains {
  explicit TwoChains(int64_t width = 64) {
    const ValueId x = b.input("x", {width});
    ValueId ends[2];
    for (ValueId& end : ends) {
      end = x;
      for (const Op op : {Op::neg, Op::tanh, Op::exp}) end = b.apply(op, {end});
    }
    b.output("y", b.apply(Op::add, {ends[0], ends[1]}));
    steps = steps_of(b.program);
  }
  std::vector<OrderedStep> order(uint32_t rest = 7) const { return order_steps(b.program, steps, alone, rest); }
  Builder b;
  std::vector<PlannedStep> steps;
  std::vector<bool> alone = std::vector<bool>(7);
};

}  // namespace

TEST_CASE("step order: independent small steps become neighbours") {
  TwoChains t;
  const auto order = t.order();
  CHECK(numbers_of(order) == std::vector<uint32_t>{0, 3, 1, 4, 2, 5, 6});
  std::vector<bool> joins;
  for (const OrderedStep& o : order) joins.push_back(o.joins);
  CHECK(joins == std::vector<bool>{false, true, false, true, false, true, false});
}

TEST_CASE("step order: large steps, steps that run alone and steps beyond the forward pass stay where they are") {
  const std::vector<uint32_t> as_written{0, 1, 2, 3, 4, 5, 6};
  CHECK(numbers_of(TwoChains(20'000).order()) == as_written);  // 80 KB
  TwoChains t;
  CHECK(numbers_of(t.order(3)) == as_written);
  for (PlannedStep& s : t.steps) s.workspace = 80'000;
  CHECK(numbers_of(t.order()) == as_written);
  TwoChains other;
  other.alone[3] = true;  // the second chain waits for it
  CHECK(numbers_of(other.order()) == as_written);
}

TEST_CASE("step order: steps that read a state precede its update") {
  Builder b;
  const ValueId s = b.state("s", {4}), x = b.input("x", {4});
  const ValueId sum = b.apply(Op::add, {s, x});
  const ValueId read = b.apply(Op::neg, {b.apply(Op::tanh, {s})});
  b.output("y", read);
  b.update("s", sum);
  const auto steps = steps_of(b.program);
  REQUIRE(steps.size() == 3);
  // The update comes first in the program: a later reader of the old value must not be moved beside it.
  const auto order = order_steps(b.program, steps, std::vector<bool>(3), 3);
  CHECK(numbers_of(order) == std::vector<uint32_t>{0, 1, 2});
  CHECK_FALSE(order[1].joins);
}

TEST_CASE("step order: new values of states count as small, because they take no memory of their own") {
  for (const bool updates : {false, true}) {
    Builder b;
    const ValueId small = b.input("x", {4}), large = b.state("s", {20'000});
    b.output("y", b.apply(Op::neg, {b.apply(Op::exp, {small})}));
    const ValueId next = b.apply(Op::neg, {large});
    updates ? b.update("s", next) : b.output("z", next);
    const auto order = order_steps(b.program, steps_of(b.program), std::vector<bool>(3), 3);
    CHECK(numbers_of(order) == (updates ? std::vector<uint32_t>{0, 2, 1} : std::vector<uint32_t>{0, 1, 2}));
  }
}

TEST_CASE("step order: dependencies precede, joined steps are independent and share no memory in random programs") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const Program program = RandomProgram(seed, 100).program();
    const auto steps = steps_of(program, seed % 5 * 40);
    std::vector<bool> alone(steps.size());
    std::mt19937 random(seed);
    for (size_t i = 0; i < alone.size(); ++i) alone[i] = random() % 8 == 0;
    const auto rest = static_cast<uint32_t>(random() % (steps.size() + 1));
    const auto order = order_steps(program, steps, alone, rest);
    REQUIRE(order.size() == steps.size());
    std::vector<uint32_t> sorted = numbers_of(order);
    for (uint32_t i = 0; i < rest; ++i) REQUIRE(sorted[i] < rest);
    std::sort(sorted.begin(), sorted.end());
    for (uint32_t i = 0; i < sorted.size(); ++i) REQUIRE(sorted[i] == i);

    // By value: the position of its step, in groups of joined steps.
    std::vector<int> group_of(program.values.size(), -1);
    std::map<uint32_t, int> group_of_node;
    int group = -1;
    std::vector<PlannedStep> planned;
    for (const OrderedStep& o : order) {
      group += !o.joins;
      REQUIRE((!o.joins || !alone[o.step]));
      group_of_node[steps[o.step].node] = group;
      planned.push_back(steps[o.step]);
      planned.back().joins = o.joins;
    }
    for (uint32_t n = 0; n < program.nodes.size(); ++n) {
      const Node& node = program.nodes[n];
      int latest = -1;
      for (const ValueId v : node.inputs) latest = std::max(latest, group_of[v]);
      const auto at = group_of_node.find(n);
      if (at != group_of_node.end()) REQUIRE(latest < at->second);
      for (const ValueId v : node.outputs) group_of[v] = at != group_of_node.end() ? at->second : latest;
    }

    const MemoryPlan plan = plan_memory(program, planned, rest);
    const auto place = [&](const Location& l, uint64_t bytes) {
      return std::pair(l.place == Place::arena ? l.offset : 0, l.place == Place::arena ? l.offset + bytes : 0);
    };
    for (size_t a = 0; a < planned.size(); ++a)
      for (size_t b = a + 1; b < planned.size() && planned[b].joins; ++b) {
        const auto x = place(plan.workspaces[a], planned[a].workspace),
                   y = place(plan.workspaces[b], planned[b].workspace);
        REQUIRE((x.second <= y.first || y.second <= x.first));
        for (const ValueId v : program.nodes[planned[a].node].outputs)
          for (const ValueId w : program.nodes[planned[b].node].outputs) {
            const auto p = place(plan.values[v], program.type(v).bytes()),
                       q = place(plan.values[w], program.type(w).bytes());
            REQUIRE((p.second <= q.first || q.second <= p.first));
          }
      }
  }
}
