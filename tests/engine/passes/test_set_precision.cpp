// set_precision and convert_operands: rounded operands of products, and products of several types.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>

#include <harmonics/ops.hpp>

#include "engine/passes/pass.hpp"
#include "engine/passes/precision_recipe.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/op.hpp"
#include "engine/program/print.hpp"
#include "engine/program/tracer.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

// An affine map, a convolution, attention and a sum, then a product of the gradient.
Program several_products(DType weight = DType::F32) {
  Tracer t("several");
  const HTensor x = t.input("x", {DType::F32, {4, 64}}), w = t.parameter("w", {weight, {96, 64}}),
                image = t.input("image", {DType::F32, {1, 1, 6, 6}}),
                kernel = t.parameter("k", {DType::F32, {2, 1, 3, 3}});
  HTensor y;
  {
    const TraceScope scope(NodeScope{"layer"});
    y = call1("linear", {x, w});
    t.output("y", relu(y));
    t.output("conv", call1("conv", {image, kernel}));
  }
  {
    const TraceScope scope(NodeScope{"layer", Phase::gradient});
    t.output("dw", dot(y, x, {0}, {0}));
  }
  return t.take();
}

std::map<std::string, Rounding> roundings_of_calls(const Program& p) {
  std::map<std::string, Rounding> all;
  for (const Node& n : p.nodes)
    if (n.op == Op::call || n.op == Op::dot || n.op == Op::maximum)
      all[n.op == Op::call ? n.callee : std::string(op_name(n.op))] = p.scope_of(n).rounding;
  return all;
}

PrecisionRule rounding_rule(Rounding rounding) {
  PrecisionRule rule;
  rule.rounding = rounding;
  return rule;
}

}  // namespace

TEST_CASE("set_precision: products get the rounding of the recipe, other operations none") {
  const Program p = several_products(), now = set_precision(p, {"fp16", {rounding_rule(Rounding::fp16)}});
  const auto roundings = roundings_of_calls(now);
  for (const auto& [name, rounding] : roundings) {
    CAPTURE(name);
    CHECK(rounding == (name == "maximum" || name == "relu" ? Rounding::none : Rounding::fp16));
  }
  CHECK(roundings.count("linear") == 1);
  CHECK(roundings.count("conv") == 1);
  CHECK(roundings.count("dot") == 1);
  CHECK(print(set_precision(p, {"fp32", {}})) == print(p));
  CHECK(print(parse_program(print(now), "now")) == print(now));
}

TEST_CASE("set_precision: the first rule that applies decides, by phase, functional and type of the weight") {
  PrecisionRule gradients = rounding_rule(Rounding::none), maps = rounding_rule(Rounding::bf16);
  gradients.phases = {Phase::gradient};
  maps.functional = "linear";
  const auto roundings = roundings_of_calls(
      set_precision(several_products(), {"recipe", {gradients, maps, rounding_rule(Rounding::fp16)}}));
  CHECK(roundings.at("dot") == Rounding::none);
  CHECK(roundings.at("linear") == Rounding::bf16);
  CHECK(roundings.at("conv") == Rounding::fp16);
  PrecisionRule of_type = rounding_rule(Rounding::bf16);
  of_type.weight = DType::Q8_0;
  CHECK(roundings_of_calls(set_precision(several_products(DType::Q8_0), {"", {of_type}})).at("linear") ==
        Rounding::bf16);
  CHECK(roundings_of_calls(set_precision(several_products(), {"", {of_type}})).at("linear") == Rounding::none);
}

TEST_CASE("set_precision: a least side leaves short products in f32") {
  PrecisionRule rule = rounding_rule(Rounding::fp16);
  for (const int64_t least : {4, 5}) {
    CAPTURE(least);
    rule.least_side = least;  // 4 rows
    const auto roundings = roundings_of_calls(set_precision(several_products(), {"", {rule}}));
    const Rounding expected = least == 4 ? Rounding::fp16 : Rounding::none;
    CHECK(roundings.at("linear") == expected);
    CHECK(roundings.at("dot") == expected);
  }
}

TEST_CASE("set_precision: rows that meet quantised weights are quantised, in whole blocks of the forward pass") {
  PrecisionRule rule;
  rule.stored = true;
  rule.activation_type = "q8_0";
  const auto quantised = [&](const Program& p) {
    const Program now = set_precision(p, {"int8", {rule}});
    return std::count_if(now.nodes.begin(), now.nodes.end(),
                         [](const Node& n) { return n.attributes.text("activation_type", "") == "q8_0"; });
  };
  CHECK(quantised(several_products(DType::Q8_0)) == 1);
  CHECK(quantised(several_products(DType::F32)) == 0);
  for (const DType kept : {DType::Q8_0, DType::BF16}) {  // in a flow, whose layers ask for f32
    Tracer widened("widened");
    widened.output("y", call1("linear", {widened.input("x", {DType::F32, {2, 32}}),
                                         cast(widened.parameter("w", {kept, {4, 32}}), DType::F32)}));
    CHECK(quantised(widened.take()) == (kept == DType::Q8_0 ? 1 : 0));
  }
  Tracer odd("odd");
  odd.output("y",
             call1("linear", {odd.input("x", {DType::F32, {2, 30}}), odd.parameter("w", {DType::F8_E4M3, {4, 30}})}));
  CHECK(quantised(odd.take()) == 0);
  Tracer backward("backward");
  {
    const TraceScope scope(NodeScope{"", Phase::gradient});
    backward.output("y", call1("linear", {backward.input("x", {DType::F32, {2, 32}}),
                                          backward.parameter("w", {DType::Q8_0, {4, 32}})}));
  }
  CHECK(quantised(backward.take()) == 0);
}

TEST_CASE("set_precision: bodies and fused calls have the rounding of the call") {
  const Program p = set_precision(several_products(), {"bf16", {rounding_rule(Rounding::bf16)}});
  const Program inlined = inline_calls(p, [](const Program&, const Node&) { return false; });
  size_t products = 0;
  for (const Node& n : inlined.nodes)
    if (n.op == Op::dot) {
      ++products;
      CHECK(inlined.scope_of(n).rounding == Rounding::bf16);
    }
  CHECK(products >= 3);
}

TEST_CASE("cse keeps equal products of different roundings apart") {
  Program p = several_products();
  Node second = *std::find_if(p.nodes.begin(), p.nodes.end(), [](const Node& n) { return n.op == Op::dot; });
  const TensorType type = p.type(second.outputs[0]);
  second.scope = p.scope_index({"layer", Phase::gradient, "", Rounding::fp16});
  const uint32_t index = p.append(std::move(second), {type});
  p.outputs.push_back({"again", p.nodes[index].outputs[0]});
  const auto products = [](const Program& of) {
    return std::count_if(of.nodes.begin(), of.nodes.end(), [](const Node& n) { return n.op == Op::dot; });
  };
  CHECK(products(cse(p)) == 2);
}

TEST_CASE("convert_operands: products of several types become a product of f32 with the same numbers") {
  const auto program = [](DType a, DType b, const char* out) {
    Tracer t("mixed");
    Attributes axes;
    axes.set("lhs_contract", std::vector<int64_t>{1}).set("rhs_contract", std::vector<int64_t>{0});
    axes.set("lhs_batch", std::vector<int64_t>{}).set("rhs_batch", std::vector<int64_t>{});
    if (*out) axes.set("out_dtype", out);
    t.output("y", call1("dot", {t.input("a", {a, {3, 8}}), t.input("b", {b, {8, 2}})}, axes));
    return t.take();
  };
  std::vector<float> values;
  for (int i = 0; i < 24; ++i) values.push_back(static_cast<float>(i * 5 % 17 - 8) / 4);
  const HTensor a = HTensor::from({3, 8}, values),
                b = HTensor::from({8, 2}, std::vector<float>(values.begin(), values.begin() + 16));
  for (const DType x : {DType::F32, DType::F16, DType::BF16})
    for (const DType y : {DType::F32, DType::F16, DType::BF16})
      for (const char* out : {"", "f16", "f64"}) {
        CAPTURE(dtype_name(x), dtype_name(y), out);
        const Program p = program(x, y, out),
                      now = convert_operands(p, [](const Program&, const Node&) { return false; });
        for (const Node& n : now.nodes)
          if (n.op == Op::dot) {
            CHECK(is_usual_product(now, n));
            CHECK(now.type(n.outputs[0]).dtype == DType::F32);
          }
        const std::map<std::string, HTensor> given{{"a", cast(a, x)}, {"b", cast(b, y)}};
        const HTensor before = interpret(p, given)[0], after = interpret(now, given)[0];
        REQUIRE(type_of(before) == type_of(after));
        const HTensor u = cast(before, DType::F64), v = cast(after, DType::F64);
        for (int64_t i = 0; i < u.size(); ++i) CHECK(u.data<double>()[i] == v.data<double>()[i]);
        CHECK(print(convert_operands(p, [](const Program&, const Node&) { return true; })) == print(p));
      }
}
