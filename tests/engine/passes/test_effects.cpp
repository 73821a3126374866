// The effect of each pass on small programs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include <harmonics/ops.hpp>

#include "engine/passes/pass.hpp"
#include "engine/program/chain.hpp"
#include "engine/program/gradient.hpp"
#include "tests/engine/passes/random_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

AttributeMap shape_of(std::vector<int64_t> dims) { return AttributeMap().set("shape", std::move(dims)); }
size_t computing(const Program& program) {
  return static_cast<size_t>(std::count_if(program.nodes.begin(), program.nodes.end(),
                                           [](const Node& n) { return !is_leaf(n.op) && !is_constant(n.op); }));
}
const Node& only(const Program& program, Op op) {
  REQUIRE(count_of(program, op) == 1);
  return *std::find_if(program.nodes.begin(), program.nodes.end(), [&](const Node& n) { return n.op == op; });
}

}  // namespace

TEST_CASE("cse: joins equal nodes and constants, but not if one bit differs") {
  Builder b;
  const ValueId x = b.input("x", {2});
  const ValueId one = b.literal(HTensor::from<float>({2}, {1, 2})), same = b.literal(HTensor::from<float>({2}, {1, 2}));
  b.output("a", b.apply(Op::add, {x, one}));
  b.output("b", b.apply(Op::add, {x, same}));
  b.output("c", b.apply(Op::div, {x, b.full({2}, 0.0)}));
  b.output("d", b.apply(Op::div, {x, b.full({2}, -0.0)}));
  const Program joined = cse(b.program);
  CHECK(joined.outputs[0].value == joined.outputs[1].value);
  CHECK(joined.outputs[2].value != joined.outputs[3].value);
  CHECK(joined.nodes.size() == b.program.nodes.size() - 2);
}

TEST_CASE("cse: keeps random streams apart and joins equal ones") {
  Builder b;
  const ValueId counter = b.input("counter", {2}, DType::I64);
  const auto random = [&](int64_t stream) {
    return b.apply(Op::random_uniform, {counter}, shape_of({4}).set("stream", stream));
  };
  b.output("a", random(1));
  b.output("b", random(1));
  b.output("c", random(2));
  const Program joined = cse(b.program);
  CHECK(count_of(joined, Op::random_uniform) == 2);
  CHECK(joined.outputs[0].value == joined.outputs[1].value);
}

TEST_CASE("dce: keeps only what outputs and updates need") {
  Builder b;
  const ValueId x = b.input("x", {2}), w = b.parameter("w", {2});
  b.input("unused", {2});
  b.apply(Op::exp, {x});
  b.update("w", b.apply(Op::neg, {w}));
  b.output("y", x);
  const Program kept = dce(b.program);
  CHECK(kept.nodes.size() == 3);
  CHECK(kept.leaf(Op::input, "unused") == nullptr);
}

TEST_CASE("simplify: folds constants and removes operations without effect") {
  Builder b;
  const ValueId x = b.input("x", {2, 1, 3});
  const ValueId turned = b.apply(Op::transpose, {x}, AttributeMap().set("permutation", std::vector<int64_t>{1, 0, 2}));
  const ValueId flat = b.apply(Op::reshape, {turned}, shape_of({6}));
  const ValueId two = b.apply(Op::add, {b.full({6}, 1.0), b.full({6}, 1.0)});
  const ValueId scaled = b.apply(Op::mul, {flat, b.apply(Op::sub, {two, b.full({6}, 1.0)})});
  b.output("y", b.apply(Op::stop_gradient, {b.apply(Op::neg, {b.apply(Op::neg, {scaled})})}));
  const Program simple = dce(simplify(b.program));
  CHECK(computing(simple) == 1);
  CHECK(only(simple, Op::reshape).inputs[0] == simple.leaf(Op::input, "x")->outputs[0]);
}

TEST_CASE("simplify: keeps the sign of zero") {
  Builder b;
  const ValueId x = b.input("x", {1});
  b.output("y", b.apply(Op::add, {x, b.full({1}, 0.0)}));
  const Program simple = simplify(b.program);
  const float minus_zero = -0.0f;
  const std::map<std::string, HTensor> numbers{{"x", HTensor(DType::F32, {1}, &minus_zero)}};
  CHECK_FALSE(std::signbit(interpret(simple, numbers)[0].item<float>()));
}

TEST_CASE("fuse_calls: joins an activation only if its input has no other reader") {
  Builder b;
  const ValueId x = b.input("x", {2, 3}), w = b.parameter("w", {4, 3}), c = b.parameter("b", {4});
  const auto always = [](const auto&...) { return true; };
  const ValueId y = b.call("linear", {x, w, c});
  b.output("y", b.call("relu", {y}));
  SECTION("joined") {
    const Program fused = fuse_calls(b.program, always);
    CHECK(only(fused, Op::call).attributes.text("activation", "") == "relu");
  }
  SECTION("the value is read elsewhere") {
    b.output("before", y);
    CHECK(count_of(fuse_calls(b.program, always), Op::call) == 2);
  }
  SECTION("the device has no such kernel") {
    CHECK(count_of(fuse_calls(b.program, [](const auto&...) { return false; }), Op::call) == 2);
  }
}

TEST_CASE("fuse_elementwise: a chain becomes one node with broadcast inputs and constants as numbers") {
  Builder b;
  const ValueId x = b.input("x", {8, 4}), bias = b.parameter("b", {4});
  const ValueId y = b.apply(Op::add, {x, b.apply(Op::broadcast, {bias}, shape_of({8, 4}))});
  const ValueId positive = b.apply(Op::less, {b.full({8, 4}, 0.0), y});
  const ValueId leaky = b.apply(Op::select, {positive, y, b.apply(Op::mul, {y, b.full({8, 4}, 0.01)})});
  b.output("y", leaky);
  b.output("positive", positive);
  const Program fused = fuse_elementwise(b.program);
  const Node& chain = only(fused, Op::fused_elementwise);
  CHECK(computing(fused) == 1);
  CHECK(chain.outputs.size() == 2);
  for (ValueId v : chain.inputs) CHECK(fused.type(v).shape.rank() < 3);
  CHECK(chain.attributes.text("chain") == "add(0,1):f32 less(2,4):bool mul(4,3):f32 select(5,4,6):f32");
  CHECK(count_of(fused, Op::broadcast) == 0);
}

TEST_CASE("fuse_elementwise: does not join across a reduction") {
  Builder b;
  const ValueId x = b.input("x", {8, 4}), e = b.apply(Op::exp, {x});
  const ValueId sum =
      b.apply(Op::reduce_sum, {e}, AttributeMap().set("axes", std::vector<int64_t>{1}).set("keep", true));
  b.output("y", b.apply(Op::div, {e, b.apply(Op::broadcast, {sum}, shape_of({8, 4}))}));
  const Program fused = fuse_elementwise(b.program);
  CHECK(count_of(fused, Op::exp) == 1);
  CHECK(count_of(fused, Op::fused_elementwise) == 1);  // only the division, reading the sums
}

TEST_CASE("fuse_elementwise: keeps the forward pass separate") {
  Builder b;
  const ValueId x = b.input("x", {4});
  b.scope("hidden");
  const ValueId y = b.apply(Op::tanh, {b.apply(Op::neg, {x})});
  b.output("y", y);
  b.scope("gradient/hidden");
  b.output("d", b.apply(Op::mul, {y, b.apply(Op::abs, {y})}));
  const Program fused = fuse_elementwise(b.program);
  CHECK(count_of(fused, Op::fused_elementwise) == 2);
}

TEST_CASE("fuse_elementwise: stays within a device's registers") {
  Builder b;
  ValueId x = b.input("x", {4});
  for (int i = 0; i < 100; ++i) x = b.apply(i % 2 ? Op::tanh : Op::neg, {x});
  b.output("y", x);
  const Program fused = fuse_elementwise(b.program);
  for (const Node& n : fused.nodes)
    if (n.op == Op::fused_elementwise) CHECK(chain_of(n.attributes, n.inputs.size()).ops.size() <= 32);
  CHECK(computing(fused) == 4);
}

TEST_CASE("fuse passes: nodes without a kernel are unchanged") {
  Builder b;
  b.output("y", b.apply(Op::tanh, {b.apply(Op::neg, {b.input("x", {4})})}));
  const auto no_chains = [](const Program&, const Node& n) { return n.op != Op::fused_elementwise; };
  CHECK(count_of(fuse_elementwise(b.program, no_chains), Op::fused_elementwise) == 0);
  CHECK(count_of(fuse_elementwise(b.program, [](const auto&...) { return false; }), Op::tanh) == 1);
}

TEST_CASE("matches_pattern: scope patterns") {
  CHECK(matches_pattern("blocks.3/attention", "*/attention"));
  CHECK(matches_pattern("attention", "attention"));
  CHECK(matches_pattern("a/b/c", "a*c"));
  CHECK(matches_pattern("", "*"));
  CHECK_FALSE(matches_pattern("blocks.3/attention/x", "*/attention"));
  CHECK_FALSE(matches_pattern("", "?"));
}

TEST_CASE("recompute: clones matching nodes before their first later use, once") {
  Builder b;
  const ValueId x = b.input("x", {4});
  b.scope("block/mlp");
  const ValueId a = b.apply(Op::exp, {x}), c = b.apply(Op::tanh, {a});
  b.scope("block/residual");
  const ValueId r = b.apply(Op::add, {x, c});
  b.scope("gradient/block");
  const ValueId d = b.apply(Op::mul, {a, c}), e = b.apply(Op::mul, {d, a});
  b.output("r", b.apply(Op::reverse, {r}, AttributeMap().set("axes", std::vector<int64_t>{0})));
  b.output("e", b.apply(Op::add, {e, r}));
  const Program again = recompute(b.program, {"block*"});
  CHECK(count_of(again, Op::exp) == 2);
  CHECK(count_of(again, Op::tanh) == 2);
  CHECK(count_of(again, Op::add) == 2);  // not recomputed: the residual
  CHECK(cse(again).nodes.size() == again.nodes.size());
  const auto first_clone = std::find_if(again.nodes.begin(), again.nodes.end(),
                                        [&](const Node& n) { return is_in(Phase::recomputed, again, n); });
  const auto first_later =
      std::find_if(again.nodes.begin(), again.nodes.end(), [&](const Node& n) { return n.op == Op::mul; });
  CHECK(first_clone < first_later);
  CHECK(again.scope_of(*first_clone) == NodeScope{"block/mlp", Phase::recomputed});
  CHECK(recompute(b.program, {}).nodes.size() == b.program.nodes.size());
}

TEST_CASE("advance_updates: directly after gradients and last readers, never in the forward pass") {
  Builder b;
  const ValueId x = b.input("x", {4}), w = b.parameter("w", {4}), v = b.parameter("v", {4}), lr = b.input("lr", {4});
  b.output("y", b.apply(Op::mul, {b.apply(Op::mul, {x, w}), v}));
  b.scope("gradient/hidden");
  const ValueId dv = b.apply(Op::tanh, {x}), through_v = b.apply(Op::exp, {v}), dw = b.apply(Op::sin, {through_v});
  b.scope("optimizer/v");
  const ValueId rate = b.apply(Op::neg, {lr});
  b.update("v", b.apply(Op::sub, {v, b.apply(Op::div, {dv, rate})}));
  b.scope("optimizer/w");
  b.update("w", b.apply(Op::minimum, {w, dw}));
  const Program early = advance_updates(b.program);
  std::vector<std::string> order;
  for (const Node& n : early.nodes)
    if (!is_leaf(n.op)) order.emplace_back(op_name(n.op));
  CHECK(order == std::vector<std::string>{"mul", "mul", "tanh", "neg", "div", "exp", "sub", "sin", "minimum"});
}

TEST_CASE("chain_of: reads attributes, rejects invalid ones") {
  Chain chain;
  chain.shape = {2, 3};
  chain.ops = {{Op::mul, 2, {0, 1, 0}, DType::F32},
               {Op::less, 2, {2, 0, 0}, DType::Bool},
               {Op::select, 3, {3, 0, 2}, DType::F32}};
  chain.outputs = {4, 3};
  const AttributeMap attributes = chain.attributes();
  CHECK(attributes.text("chain") == "mul(0,1):f32 less(2,0):bool select(3,0,2):f32");
  CHECK(chain_of(attributes, 2).attributes() == attributes);
  const std::vector<TensorType> inputs{{DType::F32, {2, 3}}, {DType::F32, {3}}};
  CHECK(infer_chain(attributes, inputs) == std::vector<TensorType>{{DType::F32, {2, 3}}, {DType::Bool, {2, 3}}});
  const auto refuses = [&](const char* text, int64_t stored) {
    AttributeMap a = attributes;
    a.set("chain", std::string(text)).set("outputs", std::vector<int64_t>{stored});
    CHECK_THROWS_AS(infer_chain(a, inputs), Error);
  };
  refuses("mul(0,1)", 2);
  refuses("dot(0,1):f32", 2);
  refuses("mul(0,2):f32", 2);
  refuses("mul(0):f32", 2);
  refuses("mul(0,1,1,1):f32", 2);
  refuses("mul(0,x):f32", 2);
  refuses("mul(0,1):f64", 2);
  refuses("mul(0,1):f32", 1);
  refuses("mul(0,1):f32", 3);
}
