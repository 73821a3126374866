// absorb_conversions: products and lookups that read the unconverted operands.
#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include <harmonics/ops.hpp>

#include "engine/passes/pass.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/op.hpp"
#include "engine/program/tracer.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

constexpr int64_t kBatch = 4, kIn = 5, kOut = 3;

HTensor numbers(const Shape& shape) {
  std::vector<float> v;
  for (int64_t i = 0; i < shape.count(); ++i) v.push_back(static_cast<float>(i * 37 % 29 - 14) / 16);
  return HTensor::from(shape, v);
}

// An image's bytes into an affine map whose weight is updated. `reads` adds another reader.
class BytesTracer {
 public:
  Program run(DType dtype, void (*reads)(Tracer&, const HTensor&) = nullptr, double scale = 0.25) {
    const HTensor bytes = tracer_.input("x", {dtype, {kBatch, kIn}}),
                  w = tracer_.parameter("w", {DType::F32, {kIn, kOut}}),
                  dy = tracer_.input("dy", {DType::F32, {kBatch, kOut}}),
                  rate = tracer_.input("rate", {DType::F32, {}});
    const HTensor x = cast(bytes, DType::F32) * scale;
    tracer_.output("y", apply("linear", AttributeMap().set("transposed", true), {x, w}).at(0));
    tracer_.update("w", apply("sgd_outer", {}, {w, x, dy, rate}).at(0));
    if (reads) reads(tracer_, x);
    return dce(cse(simplify(tracer_.take())));
  }

 private:
  Tracer tracer_{"bytes"};
};

int64_t scaled(const Program& p) {
  return std::count_if(p.nodes.begin(), p.nodes.end(),
                       [](const Node& n) { return n.op == Op::call && n.attributes.has("scale"); });
}
int64_t casts(const Program& p) {
  return std::count_if(p.nodes.begin(), p.nodes.end(), [](const Node& n) { return n.op == Op::cast; });
}
bool everything(const std::string&, const AttributeMap&, const std::vector<TensorType>&, Rounding) { return true; }

std::vector<std::vector<float>> results(const Program& program) {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < kBatch * kIn; ++i) bytes.push_back(static_cast<uint8_t>(i * 53));
  const Values values = interpret(program, {{"x", HTensor::from<uint8_t>({kBatch, kIn}, bytes)},
                                            {"w", numbers({kIn, kOut})},
                                            {"dy", numbers({kBatch, kOut})},
                                            {"rate", HTensor::from<float>({}, {0.5f})}});
  std::vector<std::vector<float>> all;
  for (const HTensor& v : values) all.emplace_back(v.data<float>(), v.data<float>() + v.size());
  return all;
}

}  // namespace

TEST_CASE("absorb_conversions: products read bytes with a scale") {
  const Program p = BytesTracer().run(DType::U8), fused = absorb_conversions(p, everything);
  REQUIRE(scaled(p) == 0);
  CHECK(scaled(fused) == 2);
  CHECK(casts(fused) == 0);
  CHECK(results(fused) == results(p));
  for (const Node& n : fused.nodes)
    if (n.op == Op::call) CHECK(n.attributes.number("scale") == 0.25);
}

TEST_CASE("absorb_conversions: all readers are accepted with new attributes and types, or none") {
  const Program p = BytesTracer().run(DType::U8);
  std::vector<std::string> asked;
  const auto only_maps = [&](const std::string& callee, const AttributeMap& attributes,
                             const std::vector<TensorType>& types, Rounding) {
    asked.push_back(callee);
    CHECK(attributes.number("scale") == 0.25);
    CHECK(types.at(callee == "linear" ? 0 : 1) == TensorType{DType::U8, {kBatch, kIn}});
    return callee == "linear";
  };
  const Program left = absorb_conversions(p, only_maps);
  CHECK(asked == std::vector<std::string>{"linear", "sgd_outer"});
  CHECK(scaled(left) == 0);
  CHECK(casts(left) == 1);
}

TEST_CASE("absorb_conversions: values with other readers are computed") {
  const Program output = BytesTracer().run(DType::U8, [](Tracer& t, const HTensor& x) { t.output("x", x); });
  const Program reader = BytesTracer().run(DType::U8, [](Tracer& t, const HTensor& x) {
    t.output("most", reduce_max(x, {0, 1}));
  });
  const Program weight = BytesTracer().run(DType::U8, [](Tracer& t, const HTensor& x) {
    t.output("z", apply("linear", {}, {x, x}).at(0));
  });
  const Program floats = BytesTracer().run(DType::F64);
  for (const Program* p : {&output, &reader, &weight, &floats}) {
    CHECK(scaled(absorb_conversions(*p, everything)) == 0);
    CHECK(casts(absorb_conversions(*p, everything)) == 1);
  }
}

TEST_CASE("absorb_conversions: scales that change zeros are not fused") {
  for (const double scale : {1e-40, 1e300, -1e300, std::numeric_limits<double>::quiet_NaN()})
    CHECK(scaled(absorb_conversions(BytesTracer().run(DType::U8, nullptr, scale), everything)) == 0);
  CHECK(scaled(absorb_conversions(BytesTracer().run(DType::U8, nullptr, -2.0), everything)) == 2);
}

namespace {

Program typed_program(const std::function<void(Tracer&)>& trace) {
  Tracer tracer("typed");
  trace(tracer);
  return dce(cse(simplify(tracer.take())));
}
const Node* call_in(const Program& p, const std::string& name) {
  for (const Node& n : p.nodes)
    if (op_name(n.op) == name || n.callee == name) return &n;
  return nullptr;
}
// Returns whether both programs give the same results on random operands.
bool same_results(const Program& a, const Program& b) {
  std::map<std::string, HTensor> given;
  for (const Node* leaf : a.leaves(Op::input)) {
    const TensorType type = a.type(leaf->outputs[0]);
    given[leaf->callee] = is_integer(type.dtype) ? cast(abs(numbers(type.shape) * 4.0), type.dtype)
                                                 : cast(numbers(type.shape), type.dtype);
  }
  const Values before = interpret(a, given), after = interpret(b, given);
  for (size_t i = 0; i < before.size(); ++i) {
    if (type_of(before[i]) != type_of(after[i])) return false;
    const HTensor x = cast(before[i], DType::F64), y = cast(after[i], DType::F64);
    for (int64_t k = 0; k < x.size(); ++k)
      if (x.data<double>()[k] != y.data<double>()[k]) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("absorb_conversions: affine maps read weights in the type that they are kept in") {
  for (const DType kept : {DType::BF16, DType::F16, DType::Q8_0, DType::F8_E4M3})
    for (const bool quantises : {false, true}) {
      CAPTURE(dtype_name(kept), quantises);
      const Program p = typed_program([&](Tracer& t) {
        const HTensor x = t.input("x", {DType::F32, {3, 32}}), w = t.input("w", {kept, {5, 32}});
        AttributeMap how;
        if (quantises) how.set("activation_type", std::string("q8_0"));
        t.output("y", apply("linear", how, {x, cast(w, DType::F32)}).at(0));
      });
      const Program absorbed = absorb_conversions(p, everything);
      CHECK(casts(p) == 1);
      CHECK(casts(absorbed) == 0);
      CHECK(absorbed.type(call_in(absorbed, "linear")->inputs[1]).dtype == kept);
      CHECK(same_results(p, absorbed));
    }
}

TEST_CASE("absorb_conversions: an operand that decides about the type of the result leaves it as it was") {
  const Program p = typed_program([&](Tracer& t) {
    const HTensor x = t.input("x", {DType::BF16, {3, 8}}), w = t.input("w", {DType::F32, {5, 8}}),
                  table = t.input("table", {DType::F16, {6, 8}}), ids = t.input("ids", {DType::U8, {2}});
    t.output("y", call1("linear", {cast(x, DType::F32), w}));
    t.output("z", dot(cast(x, DType::F32), w, {1}, {1}));
    t.output("rows", call1("embedding", {cast(table, DType::F32), ids}));
  });
  const Program absorbed = absorb_conversions(p, everything);
  CHECK(casts(absorbed) == 0);
  for (const char* name : {"linear", "dot", "embedding"}) {
    CAPTURE(name);
    REQUIRE(call_in(absorbed, name));
    CHECK(call_in(absorbed, name)->attributes.text("out_dtype", "") == "f32");
  }
  CHECK(same_results(p, absorbed));
}

TEST_CASE("absorb_conversions: sums of f64 stay f64") {
  const Program p = typed_program([&](Tracer& t) {
    const HTensor a = t.input("a", {DType::F32, {3, 40}}), b = t.input("b", {DType::F32, {40, 2}});
    t.output("y", dot(cast(a, DType::F64), cast(b, DType::F64), {1}, {0}));
  });
  const Program absorbed = absorb_conversions(p, everything);
  CHECK(casts(absorbed) == 0);
  CHECK(call_in(absorbed, "dot")->attributes.text("accumulate", "") == "f64");
  CHECK(call_in(absorbed, "dot")->attributes.text("out_dtype", "") == "f64");
  CHECK(same_results(p, absorbed));
}

TEST_CASE("absorb_conversions: conversions that round, and casts to whole numbers, stay") {
  const Program p = typed_program([&](Tracer& t) {
    const HTensor x = t.input("x", {DType::F32, {3, 8}}), w = t.input("w", {DType::F16, {5, 8}}),
                  n = t.input("n", {DType::U8, {3, 8}});
    t.output("narrow", call1("linear", {cast(x, DType::F16), w}));
    t.output("whole", dot(cast(n, DType::F32), cast(n, DType::F32), {1}, {1}));
  });
  CHECK(casts(absorb_conversions(p, everything)) == casts(p));
}

TEST_CASE("absorb_conversions: dequantize with a zero point of 0 becomes a scale") {
  const auto program = [](int zero_point) {
    return typed_program([&](Tracer& t) {
      const HTensor q = t.input("q", {DType::U8, {3, 8}}), w = t.input("w", {DType::F32, {5, 8}});
      t.output("y", call1("linear",
                          {call1("dequantize", {q, full(DType::F32, {}, 0.5), full(DType::U8, {}, zero_point)}), w}));
    });
  };
  const Program zero = program(0), other = program(3), absorbed = absorb_conversions(zero, everything);
  CHECK(scaled(absorbed) == 1);
  CHECK(call_in(absorbed, "dequantize") == nullptr);
  CHECK(same_results(zero, absorbed));
  CHECK(scaled(absorb_conversions(other, everything)) == 0);
}

TEST_CASE("absorb_conversions: a query for a kernel has the rounding of the product") {
  Program p = typed_program([&](Tracer& t) {
    const HTensor x = t.input("x", {DType::F32, {3, 8}}), w = t.input("w", {DType::BF16, {5, 8}});
    t.output("y", call1("linear", {x, cast(w, DType::F32)}));
  });
  for (Node& n : p.nodes)
    if (n.op == Op::call) n.scope = p.scope_index({"layer", Phase::forward, "", Rounding::bf16});
  Rounding asked = Rounding::none;
  absorb_conversions(p, [&](const auto&, const auto&, const auto&, Rounding rounding) {
    asked = rounding;
    return false;
  });
  CHECK(asked == Rounding::bf16);
}
