// accumulate_products: which sums of products are fused.
#include <catch2/catch.hpp>

#include "engine/passes/pass.hpp"
#include "tests/engine/passes/random_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

bool always(const std::string&, const AttributeMap&, const std::vector<TensorType>&, Rounding) { return true; }

AttributeMap contract(std::vector<int64_t> lhs, std::vector<int64_t> rhs) {
  const std::vector<int64_t> none;
  return AttributeMap()
      .set("lhs_contract", std::move(lhs))
      .set("rhs_contract", std::move(rhs))
      .set("lhs_batch", none)
      .set("rhs_batch", none);
}

// Products of separate inputs, and their sums.
struct Products : Builder {
  int made = 0;
  std::map<std::string, HTensor> numbers;

  ValueId given(const Shape& shape) {
    const std::string name = "x" + std::to_string(made++);
    std::vector<float> values;
    for (int64_t i = 0; i < shape.count(); ++i)
      values.push_back(static_cast<float>((i * 37 + made * 11) % 29 - 14) / 16);
    numbers[name] = HTensor::from(shape, values);
    return input(name, shape);
  }
  ValueId product() {
    const ValueId a = given({3, 4}), b = given({4, 5});
    return apply(Op::dot, {a, b}, contract({1}, {0}));
  }
  ValueId sum(ValueId a, ValueId b) { return apply(Op::add, {a, b}); }
};

size_t fused_products(const Program& p) {
  size_t n = 0;
  for (const Node& node : p.nodes) n += node.op == Op::call && node.callee == "dot_add";
  return n;
}
size_t fused_of(const Products& b) { return fused_products(accumulate_products(b.program, always)); }

}  // namespace

TEST_CASE("accumulate_products: only the first product of a sum is stored") {
  Products b;
  const ValueId first = b.product(), second = b.product(), both = b.sum(first, second), third = b.product();
  b.output("y", b.apply(Op::neg, {b.sum(third, both)}));
  const Program p = accumulate_products(b.program, always);
  REQUIRE_NOTHROW(verify(p));
  CHECK(fused_products(p) == 2);
  CHECK(count_of(p, Op::dot) == 1);
  CHECK(count_of(p, Op::add) == 0);
  CHECK(same_bits(interpret(p, b.numbers), interpret(b.program, b.numbers)));
  const auto never = [](const auto&...) { return false; };
  CHECK(accumulate_products(b.program, never).nodes.size() == b.program.nodes.size());
}

TEST_CASE("accumulate_products: a sum read after the product is kept") {
  for (bool later : {false, true}) {
    Products b;
    const ValueId skip = b.apply(Op::tanh, {b.given({3, 5})}), a = b.apply(Op::exp, {skip});
    const ValueId weight = b.given({5, 5}), product = b.apply(Op::dot, {a, weight}, contract({1}, {0}));
    const ValueId sum = b.sum(skip, product);
    b.output("y", b.apply(Op::neg, {sum}));
    if (later)
      b.output("z",
               b.apply(Op::exp, {b.apply(Op::reshape, {skip}, AttributeMap().set("shape", std::vector<int64_t>{15}))}));
    INFO(later);
    CHECK(fused_of(b) == (later ? 0 : 1));
  }
}

TEST_CASE("accumulate_products: not if the sum's memory is in use") {
  Products leaf, late, twice, result, stretched;
  leaf.output("y", leaf.sum(leaf.given({3, 5}), leaf.product()));  // the caller owns inputs
  CHECK(fused_of(leaf) == 0);
  const ValueId early = late.product();
  late.output("y", late.sum(early, late.apply(Op::exp, {late.given({3, 5})})));  // computed after the product
  CHECK(fused_of(late) == 0);
  const ValueId product = twice.product();
  twice.output("y", twice.sum(twice.apply(Op::exp, {twice.given({3, 5})}), product));
  twice.output("z", product);
  CHECK(fused_of(twice) == 0);
  const ValueId kept = result.apply(Op::exp, {result.given({3, 5})});
  result.output("kept", kept);
  result.output("y", result.sum(kept, result.product()));
  CHECK(fused_of(result) == 0);
  const ValueId row = stretched.apply(Op::exp, {stretched.given({5})});
  const ValueId rows = stretched.apply(Op::broadcast, {row}, AttributeMap().set("shape", std::vector<int64_t>{3, 5}));
  stretched.output("y", stretched.sum(rows, stretched.product()));  // a bias is cheaper in a chain after the product
  CHECK(fused_of(stretched) == 0);
}

TEST_CASE("accumulate_products: forward products are not fused with gradient sums") {
  Products b;
  const ValueId product = b.product();
  b.scope("gradient/x");
  b.output("y", b.sum(b.apply(Op::exp, {b.given({3, 5})}), product));
  CHECK(fused_of(b) == 0);
}

TEST_CASE("accumulate_products: an accumulated gradient is one step with a reset flag") {
  enum class With { nothing, own_code, other_reader, other_state };
  for (With with : {With::nothing, With::own_code, With::other_reader, With::other_state}) {
    Products b;
    b.scope("gradient/x");
    const ValueId product = b.product();
    b.scope("optimizer/w");
    const ValueId state = b.state("sum", {3, 5}), keep = b.input("keep", {}, DType::Bool);
    const ValueId flags = b.apply(Op::broadcast, {keep}, AttributeMap().set("shape", std::vector<int64_t>{3, 5}));
    const ValueId old = b.apply(Op::select, {flags, state, b.full({3, 5}, 0)});
    b.update(with == With::other_state ? "other" : "sum", b.sum(old, product));
    if (with == With::other_state) b.state("other", {3, 5});
    if (with == With::other_reader) b.output("y", b.apply(Op::neg, {state}));
    if (with == With::own_code) {  // it may throw
      Node own = b.node(Op::host_call);
      own.inputs = {product};
      b.output("y", b.append(own, {b.program.type(state)})[0]);
    }
    INFO(static_cast<int>(with));
    CHECK(fused_of(b) == (with == With::nothing ? 1 : 0));
    if (with == With::own_code) continue;
    const Program p = accumulate_products(b.program, always);
    b.numbers["sum"] = b.numbers["other"] = HTensor::from({3, 5}, std::vector<float>(15, 2));
    for (bool set : {false, true}) {
      b.numbers["keep"] = cast(HTensor::scalar(set ? 1.0f : 0.0f), DType::Bool);
      CHECK(same_bits(interpret(p, b.numbers), interpret(b.program, b.numbers)));
    }
  }
}
