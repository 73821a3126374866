#include <catch2/catch.hpp>

#include "engine/passes/match.hpp"
#include "engine/passes/uses.hpp"
#include "tests/engine/passes/random_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::vector<uint32_t> list(std::span<const uint32_t> nodes) { return {nodes.begin(), nodes.end()}; }

}  // namespace

TEST_CASE("uses: readers in order, a node once for each operand, results apart") {
  Builder b;
  const ValueId x = b.input("x", {4}), y = b.apply(Op::exp, {x}), twice = b.apply(Op::mul, {y, y}),
                view = b.apply(Op::reshape, {y}, AttributeMap().set("shape", std::vector<int64_t>{2, 2})),
                last = b.apply(Op::neg, {view});
  b.output("twice", twice);
  b.output("again", twice);
  b.output("last", last);
  b.update("w", y);
  const Uses uses(b.program), roots(b.program, Uses::Of::roots);
  CHECK(list(uses.readers(x)) == std::vector<uint32_t>{1});
  CHECK(list(uses.readers(y)) == std::vector<uint32_t>{2, 2, 3});
  CHECK(list(roots.readers(y)) == std::vector<uint32_t>{2, 2, 3, 4});
  CHECK(uses.readers(twice).empty());
  CHECK(uses.count(twice) == 2);
  CHECK(uses.once(x));
  CHECK(uses.once(last));
  CHECK_FALSE(uses.is_result(view));
  CHECK(uses.is_result(twice));
  CHECK(uses.is_result(y));
  CHECK(uses.count(y) == 4);
}

TEST_CASE("uses: counts agree with count_uses on random programs") {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const RandomProgram random(seed);
    const std::vector<uint32_t> counts = count_uses(random.program());
    const Uses uses(random.program());
    for (ValueId v = 0; v < counts.size(); ++v) REQUIRE(uses.count(v) == counts[v]);
  }
}

TEST_CASE("match: patterns capture values and refuse everything else") {
  Builder b;
  const ValueId x = b.input("x", {4}), dy = b.input("dy", {4}), none = b.full({4}, 0), one = b.full({4}, 1),
                mask = b.apply(Op::less_equal, {x, none}), kept = b.apply(Op::select, {mask, none, dy}),
                other = b.apply(Op::select, {mask, one, dy}), scaled = b.apply(Op::mul, {one, dy}),
                active = b.call("relu", {x});
  using namespace match;
  ValueId of = 0, gradient = 0;
  const auto relu_gradient = op(Op::select, op(Op::less_equal, any(of), zero()), zero(), any(gradient));
  CHECK(relu_gradient(b.program, kept));
  CHECK(of == x);
  CHECK(gradient == dy);
  CHECK_FALSE(relu_gradient(b.program, other));
  CHECK_FALSE(relu_gradient(b.program, mask));
  CHECK(op(Op::select, any(of), any(gradient), same(dy))(b.program, kept));
  CHECK_FALSE(op(Op::select, any(of), any(gradient), same(x))(b.program, kept));
  CHECK(commuted(Op::mul, same(dy), same(one))(b.program, scaled));
  CHECK_FALSE(op(Op::mul, same(dy), same(one))(b.program, scaled));
  CHECK_FALSE(commuted(Op::add, same(dy), same(one))(b.program, scaled));
  CHECK(call("relu", same(x))(b.program, active));
  CHECK_FALSE(call("gelu", same(x))(b.program, active));
  CHECK_FALSE(op(Op::less_equal, any(of), zero(), any(gradient))(b.program, mask));  // more operands than the node has
}
