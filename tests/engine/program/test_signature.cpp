// Signatures of functionals: their text, and checking calls against them.
#include <catch2/catch.hpp>

#include <harmonics/ops.hpp>

#include "engine/program/functional.hpp"
#include "engine/program/print.hpp"
#include "engine/program/tracer.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

std::string all_lines(const Error& e) {
  std::string text = e.what();
  for (const std::string& note : e.notes()) text += "\n" + note;
  return text;
}
template <typename F>
std::string refusal_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return all_lines(e);
  }
  return "no error";
}
std::string refused_signature(const std::string& text) {
  return refusal_of([&] { parse_signature(text); });
}
std::string refused_call(const char* op, const AttributeMap& attributes, const Values& inputs) {
  return refusal_of([&] { apply(op, attributes, inputs); });
}

const HTensor kThreeAxes(DType::F32, {2, 3, 4});

}  // namespace

TEST_CASE("signatures: operands, attributes and notes are read from one line") {
  const Signature s = parse_signature(
      "table [rows, width], ids i32 [N, T] or [T] < rows, bias [width]?, rest... {keep = true, n: int, mode = \"a b\" "
      "in "
      "x|y since 1.5 (of all, in {order}), scale: float? in 0<.., sizes: ints? in 1..} -> y [..., width], z?; the "
      "rest");
  REQUIRE(s.inputs.size() == 4);
  CHECK(s.inputs[1].name == "ids");
  CHECK(s.inputs[1].type == "i32 [N, T] or [T]");
  CHECK(s.inputs[1].below == "rows");
  CHECK((s.inputs[2].optional && !s.inputs[2].repeated && s.inputs[3].repeated));
  CHECK(s.fewest_inputs() == 3);
  CHECK(s.most_inputs() == SIZE_MAX);
  REQUIRE(s.attributes.size() == 5);
  CHECK((s.attributes[0].type == HX_ARG_BOOL && s.attributes[0].default_text == "true" && !s.attributes[0].required));
  CHECK((s.attributes[1].type == HX_ARG_INT && s.attributes[1].required));
  CHECK((s.attributes[2].default_text == "a b" && s.attributes[2].range == "x|y" && s.attributes[2].since == 5));
  CHECK(s.attributes[2].description == "of all, in {order}");
  CHECK((s.attributes[3].type == HX_ARG_FLOAT && s.attributes[3].range == "0<.." && !s.attributes[3].required));
  CHECK(s.attributes[4].type == HX_ARG_INTS);
  CHECK(s.notes == "the rest");
  CHECK(s.results.size() == 2);
  CHECK(s.str() ==
        "table [rows, width], ids i32 [N, T] or [T] < rows, bias [width]?, rest... {keep = true, n, mode = \"a b\", "
        "scale?, sizes?} -> y [..., width], z?");
}

TEST_CASE("signatures: invalid text is refused with the reason") {
  CHECK(refused_signature("x") == "the signature has no ' -> ' before its results: x");
  CHECK(refused_signature("x [..., n -> y") == "the signature does not close a bracket or quote: x [..., n -> y");
  CHECK(refused_signature("x] -> y") == "the signature closes a bracket that is not open: x] -> y");
  CHECK(refused_signature("x -> ") == "the signature names no result: x -> ");
  CHECK(refused_signature("x -> ...") == "the signature names no result: x -> ...");
  CHECK(refused_signature("x, x -> y") == "the signature has two operands 'x'");
  CHECK(refused_signature("[n] -> y") ==
        "the signature has an operand '[n]'; write NAME [SHAPE], NAME [SHAPE]? or NAME [SHAPE] < AXIS");
  CHECK(refused_signature("x [n] < m -> y") ==
        "the signature bounds 'x' by 'm', which is neither an axis nor an attribute");
  CHECK(refused_signature("x {a} -> y") == "the signature gives the attribute 'a' neither type nor default");
  CHECK(refused_signature("x {a: number} -> y") ==
        "the signature has an attribute of the unknown type 'number'; types are int, float, bool, text and ints");
  CHECK(refused_signature("x {a: int = b} -> y") ==
        "the signature has the default 'b' of 'a', which is not a whole number");
  CHECK(refused_signature("x {a = 1 in u|v} -> y") ==
        "the signature has the range 'u|v' of 'a', which does not fit a whole number");
  CHECK(refused_signature("x {a = 1, a = 2} -> y") == "the signature has two attributes 'a'");
  CHECK(refused_signature("x {a = 1 after} -> y") == "the signature has 'after' after the attribute 'a'");
  CHECK(refused_signature("x {a = 1 since 1.x} -> y") == "the signature has no contract after 'since' of 'a'");
  CHECK(refused_signature("x {a = } -> y") == "the signature lacks the default of 'a'");
  CHECK(refused_signature("x {a = 1} more -> y") ==
        "the signature has text between its attributes and results: x {a = 1} more -> y");
}

TEST_CASE("calls: unknown attributes are refused with the nearest name") {
  CHECK(refused_call("rope", AttributeMap().set("ofset", int64_t{5}), {kThreeAxes}) ==
        "rope has no attribute 'ofset'\ndid you mean 'offset'?");
  CHECK(refused_call("relu", AttributeMap().set("slope", 0.5), {kThreeAxes}) ==
        "relu has no attribute 'slope'\nit has none");
  CHECK(refused_call("rope", AttributeMap().set("offset", int64_t{5}), {kThreeAxes}) == "no error");
  CHECK(refused_call("one_hot", {}, {HTensor(DType::I32, {2})}) == "one_hot needs the attribute 'classes'");
}

TEST_CASE("calls: values of another type or out of range are refused") {
  CHECK(refused_call("rope", AttributeMap().set("offset", "5"), {kThreeAxes}) ==
        "rope: offset is \"5\"; it must be a whole number");
  CHECK(refused_call("rope", AttributeMap().set("offset", 5.0), {kThreeAxes}) == "no error");
  CHECK(refused_call("rope", AttributeMap().set("offset", 5.5), {kThreeAxes}) ==
        "rope: offset is 5.5; it must be a whole number");
  CHECK(refused_call("leaky_relu", AttributeMap().set("slope", int64_t{1}), {kThreeAxes}) == "no error");
  CHECK(refused_call("linear", AttributeMap().set("transposed", "yes"), {kThreeAxes, kThreeAxes}) ==
        "linear: transposed is \"yes\"; it must be true or false");
  CHECK(refused_call("conv", AttributeMap().set("strides", int64_t{2}), {kThreeAxes, kThreeAxes}) ==
        "conv: strides is 2; it must be whole numbers");
  CHECK(refused_call("huber", AttributeMap().set("delta", 0.0), {kThreeAxes, kThreeAxes}) ==
        "huber: delta is 0.0; give a value above 0");
  CHECK(refused_call("hinge", AttributeMap().set("power", int64_t{3}), {kThreeAxes, kThreeAxes}) ==
        "hinge: power is 3; give a value from 1 to 2");
  CHECK(refused_call("gelu", AttributeMap().set("approximate", "sigmoid"), {kThreeAxes}) ==
        "gelu: approximate is \"sigmoid\"; give one of none, tanh");
}

TEST_CASE("calls: the number of inputs is checked") {
  CHECK(refused_call("silu", {}, {kThreeAxes, kThreeAxes}) ==
        "silu: takes 1 input, got 2\nnote: it is x [...] -> y [...]");
  CHECK(refused_call("global_norm", {}, {}).starts_with("global_norm: takes at least 1 input, got 0"));
  CHECK(refused_call("sgd", {}, {kThreeAxes}).starts_with("sgd: takes 3 to 6 inputs, got 1"));
}

TEST_CASE("calls: a traced call and the text of a program are checked alike") {
  CHECK(refusal_of([] {
          Tracer tracer("t");
          apply("rope", AttributeMap().set("ofset", int64_t{5}), {tracer.input("x", {DType::F32, {2, 4}})});
        }) == "rope has no attribute 'ofset'\ndid you mean 'offset'?");
  const std::string text = refusal_of([] {
    parse_program("program \"p\"\n%0: f32[2, 4] = input \"x\"\n%1: f32[2, 4] = rope(%0) {ofset = 5}\n", "p.hxp");
  });
  CHECK(text.find("rope has no attribute 'ofset'") != std::string::npos);
  CHECK(text.find("did you mean 'offset'?") != std::string::npos);
}

TEST_CASE("signatures: limits of indices follow from axes and attributes") {
  const auto limit = [](const char* name, size_t input, const AttributeMap& a, std::vector<TensorType> types) {
    return index_limit(FunctionalTable::global().find(name)->signature, input, a, types);
  };
  const TensorType table{DType::F32, {70, 8}}, ids{DType::I32, {5}}, logits{DType::F32, {5, 10}};
  CHECK(limit("embedding", 1, {}, {table, ids}) == 70);
  CHECK_FALSE(limit("embedding", 0, {}, {table, ids}));
  CHECK(limit("nll", 1, {}, {logits, ids}) == 10);
  CHECK(limit("one_hot", 0, AttributeMap().set("classes", int64_t{7}), {ids}) == 7);
  CHECK_FALSE(limit("linear", 1, {}, {logits, table}));
  const auto looked_up = [](const char* name, size_t input) {
    return is_looked_up(FunctionalTable::global().find(name)->signature, input);
  };
  CHECK(looked_up("embedding", 0));
  CHECK_FALSE(looked_up("embedding", 1));
  CHECK_FALSE(looked_up("softmax_cross_entropy", 0));
}

TEST_CASE("signatures: the contract that a call needs follows from its attributes") {
  const auto minor = [](const char* name, const AttributeMap& a) {
    return contract_minor(FunctionalTable::global().find(name)->signature, a);
  };
  CHECK(minor("rope", AttributeMap().set("offset", int64_t{5})) == 0);
  CHECK(minor("rope", AttributeMap().set("pairing", "half").set("rotary_dims", int64_t{0})) == 0);
  CHECK(minor("rope", AttributeMap().set("pairing", "interleaved")) == 5);
  CHECK(minor("attention", AttributeMap().set("operands", "lengths")) == 5);
  CHECK(minor("attention", AttributeMap().set("causal", true).set("softcap", 0.0)) == 0);
  CHECK(minor("sgd_outer", AttributeMap().set("slope", "all")) == 0);
  CHECK(minor("sgd_outer", AttributeMap().set("input_gradient", "all")) == 5);
  CHECK(minor("linear", AttributeMap().set("batch_invariant", true)) == 5);
}
