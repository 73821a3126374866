// fuse_reductions: reduced values are not stored, and results are equal.
#include <catch2/catch.hpp>

#include "engine/passes/pass.hpp"
#include "tests/engine/passes/random_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

struct Loss {
  Builder b;
  ValueId x, y, error, squares, sum;
  std::map<std::string, HTensor> numbers;

  Loss() {
    std::vector<float> values;
    for (int i = 0; i < 12; ++i) values.push_back(static_cast<float>(i) / 8 - 0.7f);
    numbers["x"] = HTensor::from({3, 4}, values);
    numbers["y"] = HTensor::from({4}, std::vector<float>{1, 2, 3, 4});
    x = b.input("x", {3, 4});
    y = b.input("y", {4});
    const ValueId rows = b.apply(Op::broadcast, {y}, AttributeMap().set("shape", std::vector<int64_t>{3, 4}));
    error = b.apply(Op::sub, {x, rows});
    squares = b.apply(Op::mul, {error, error});
    sum = b.apply(Op::reduce_sum, {squares}, AttributeMap().set("axes", std::vector<int64_t>{0, 1}).set("keep", false));
    b.output("loss", sum);
  }
  Program run(const HasKernel& accepts = {}) const {
    const Program p = fuse_reductions(fuse_elementwise(b.program, {}), accepts);
    REQUIRE_NOTHROW(verify(p));
    CHECK(same_bits(interpret(p, numbers), interpret(b.program, numbers)));
    return p;
  }
};

const Node* fused(const Program& p) {
  for (const Node& node : p.nodes)
    if (node.op == Op::call && node.callee == "fused_reduce") return &node;
  return nullptr;
}

}  // namespace

TEST_CASE("fuse_reductions: the terms of a loss are not stored") {
  const Loss loss;
  const Program p = loss.run();
  REQUIRE(fused(p));
  CHECK(fused(p)->outputs.size() == 1);
  CHECK(count_of(p, Op::reduce_sum) == 0);
  CHECK(count_of(p, Op::fused_elementwise) == 0);
}

TEST_CASE("fuse_reductions: chain results with other readers are stored") {
  Loss loss;
  loss.b.output("error", loss.error);
  CHECK(fused(loss.run())->outputs.size() == 2);
  loss.b.output("squares", loss.squares);
  const Program p = loss.run();
  REQUIRE(fused(p));
  CHECK(fused(p)->outputs.size() == 3);
  CHECK(count_of(p, Op::fused_elementwise) == 0);
}

TEST_CASE("fuse_reductions: single operations, second reductions") {
  Builder b;
  const ValueId x = b.input("x", {6, 5}), square = b.apply(Op::mul, {x, x});
  const auto reduced = [&](Op op, int64_t axis) {
    return b.apply(op, {square}, AttributeMap().set("axes", std::vector<int64_t>{axis}).set("keep", true));
  };
  b.output("sum", reduced(Op::reduce_sum, 0));
  b.output("most", reduced(Op::reduce_max, 1));
  const Program p = fuse_reductions(b.program);
  REQUIRE(fused(p));
  CHECK(fused(p)->inputs.size() == 1);
  CHECK(fused(p)->outputs.size() == 2);
  CHECK(count_of(p, Op::reduce_sum) == 0);
  CHECK(count_of(p, Op::reduce_max) == 1);
  CHECK(count_of(p, Op::mul) == 0);
}

TEST_CASE("fuse_reductions: not if declined or across the halves of a step") {
  const Loss loss;
  const Program declined = loss.run([](const Program&, const Node&) { return false; });
  CHECK_FALSE(fused(declined));
  CHECK(count_of(declined, Op::reduce_sum) == 1);
  CHECK(count_of(declined, Op::fused_elementwise) == 1);
  Builder b;
  const ValueId x = b.apply(Op::exp, {b.input("x", {6, 5})});
  b.scope("gradient/x");
  b.output("sum", b.apply(Op::reduce_sum, {x}, AttributeMap().set("axes", std::vector<int64_t>{0}).set("keep", false)));
  CHECK_FALSE(fused(fuse_reductions(b.program)));
}
