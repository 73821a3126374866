// Large kernels are divided into more parts than most machines have threads; the number of threads does not change
// results.
#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>

#include "tests/engine/execution/compiled.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

HTensor numbers(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.count()));
  uint32_t state = 7;
  for (float& v : values) v = static_cast<float>(static_cast<int32_t>(state = state * 1664525 + 1013904223)) * 4e-10f;
  return HTensor::from(shape, values);
}

AttributeMap axes(std::vector<int64_t> of) { return AttributeMap().set("axes", std::move(of)); }

struct Case {
  const char* name;
  std::vector<Shape> inputs;
  std::function<ValueId(Builder&, const std::vector<ValueId>&)> build;
  uint32_t least, most;  // parts
};

AttributeMap contraction(int64_t lhs, int64_t rhs) {
  return AttributeMap()
      .set("lhs_contract", std::vector<int64_t>{lhs})
      .set("rhs_contract", std::vector<int64_t>{rhs})
      .set("lhs_batch", std::vector<int64_t>{})
      .set("rhs_batch", std::vector<int64_t>{});
}

const Case kCases[] = {
    {"exp", {{2048, 2048}}, [](Builder& b, const auto& x) { return b.apply(Op::exp, {x[0]}); }, 32, 128},
    {"product",
     {{512, 1024}, {1024, 1024}},
     [](Builder& b, const auto& x) {
       return b.apply(Op::dot, {x[0], x[1]}, contraction(1, 0));
     },
     32,
     128},
    {"weight's gradient",
     {{512, 1024}, {512, 1024}},
     [](Builder& b, const auto& x) {
       return b.apply(Op::dot, {x[0], x[1]}, contraction(0, 0));
     },
     32,
     128},
    {"softmax", {{4096, 1024}}, [](Builder& b, const auto& x) { return b.call("softmax", {x[0]}); }, 32, 128},
    {"sum of rows",
     {{4096, 4096}},
     [](Builder& b, const auto& x) { return b.apply(Op::reduce_sum, {x[0]}, axes({1})); },
     32,
     128},
    // Each part computes its own sum, so the number of parts is bounded.
    {"sum of all",
     {{4096, 4096}},
     [](Builder& b, const auto& x) {
       return b.apply(Op::reduce_sum, {x[0]}, axes({0, 1}));
     },
     2,
     16},
};

}  // namespace

TEST_CASE("parts follow the work, and results have the same bits on 1, 2, 5 and 32 threads") {
  for (const Case& c : kCases) {
    INFO(c.name);
    Builder b;
    std::map<std::string, HTensor> given;
    std::vector<ValueId> inputs;
    for (const Shape& shape : c.inputs) {
      const std::string name = "x" + std::to_string(inputs.size());
      given[name] = numbers(shape);
      inputs.push_back(b.input(name, shape));
    }
    b.output("y", c.build(b, inputs));
    Values expected;
    for (const int threads : {1, 2, 5, 32}) {
      INFO(threads << " threads");
      const auto executor = make_team_executor(threads);
      const Values found = run_compiled(b.program, given, *executor, on("cpu"));
      if (threads == 1) {
        expected = found;
        MapBinding binding(given);
        const auto plan = compile(b.program, &binding, *executor, on("cpu"));
        uint32_t parts = 0;
        for (const PlanStep& s : plan->steps()) parts = std::max(parts, s.parts);
        CHECK(parts >= c.least);
        CHECK(parts <= c.most);
      }
      REQUIRE(same_bits(found, expected));
    }
  }
}
