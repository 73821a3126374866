// Products whose operands, sums and results have several types: dot, linear, embedding.
#include <catch2/catch.hpp>

#include <cmath>
#include <map>

#include "numbers.hpp"

#include "engine/program/functional.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/print.hpp"
#include "engine/program/tracer.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using Catch::Matchers::Contains;

namespace {

AttributeMap matrix_axes(const std::string& out = "", const std::string& sums = "") {
  AttributeMap a;
  a.set("lhs_contract", std::vector<int64_t>{1}).set("rhs_contract", std::vector<int64_t>{0});
  a.set("lhs_batch", std::vector<int64_t>{}).set("rhs_batch", std::vector<int64_t>{});
  if (!out.empty()) a.set("out_dtype", out);
  if (!sums.empty()) a.set("accumulate", sums);
  return a;
}
HTensor product_of(const HTensor& a, const HTensor& b, const AttributeMap& attributes) {
  return apply("dot", attributes, {a, b}).at(0);
}
HTensor map_of(const std::vector<HTensor>& in, const AttributeMap& attributes) {
  return apply("linear", attributes, in).at(0);
}
HTensor rising(const Shape& shape, float step) {
  HTensor x(DType::F32, shape);
  for (int64_t i = 0; i < x.size(); ++i) x.mutable_data<float>()[i] = std::sin(step * static_cast<float>(i + 1));
  return x;
}
// Returns the elements rounded to a type.
std::vector<double> doubles_of_rounded(const HTensor& x, DType dtype) { return doubles(cast(x, dtype)); }
AttributeMap text_attribute(const char* name, const std::string& value) { return AttributeMap().set(name, value); }

constexpr DType kNarrow[] = {DType::F16, DType::BF16, DType::F32};

}  // namespace

TEST_CASE("mixed products: operands of several float types are summed in the wider one") {
  const HTensor a = rising({3, 5}, 0.7f), b = rising({5, 2}, 0.4f);
  for (const DType left : {DType::F16, DType::BF16, DType::F32, DType::F64})
    for (const DType right : {DType::F16, DType::BF16, DType::F32, DType::F64}) {
      CAPTURE(dtype_name(left), dtype_name(right));
      const bool any_f64 = left == DType::F64 || right == DType::F64;
      const DType wide = any_f64 ? DType::F64 : DType::F32;
      const HTensor x = cast(a, left), y = cast(b, right), product = product_of(x, y, matrix_axes());
      CHECK(product.dtype() == (left == right ? left : wide));
      CHECK(doubles_of_rounded(product_of(cast(x, wide), cast(y, wide), matrix_axes()), product.dtype()) ==
            doubles(product));
    }
}

TEST_CASE("mixed products: out_dtype and accumulate decide about the result and its sums") {
  const HTensor big = f32({1, 3}, {16777216, 1, 1}), ones = f32({3, 1}, {1, 1, 1});
  CHECK(doubles(product_of(big, ones, matrix_axes())) == std::vector<double>{16777216});
  CHECK(doubles(product_of(big, ones, matrix_axes("", "f32"))) == std::vector<double>{16777216});
  CHECK(doubles(product_of(big, ones, matrix_axes("", "f64"))) == std::vector<double>{16777218});
  CHECK(product_of(big, ones, matrix_axes("f64")).dtype() == DType::F64);
  CHECK(doubles(product_of(big, ones, matrix_axes("f64"))) == std::vector<double>{16777216});
  const HTensor halves = cast(f32({1, 2}, {1, 0.0009765625f}), DType::F16), two = cast(f32({2, 1}, {4, 1}), DType::F16);
  CHECK(doubles(product_of(halves, two, matrix_axes("f32"))) == std::vector<double>{4.0009765625});
  CHECK(doubles(product_of(halves, two, matrix_axes())) == std::vector<double>{4});  // rounded once
}

TEST_CASE("mixed products: types that do not fit are refused with the rule") {
  const HTensor x = rising({2, 2}, 1), n = i64({2, 2}, {1, 2, 3, 4}), d = cast(x, DType::F64);
  CHECK_THAT(refusal([&] { product_of(x, n, matrix_axes()); }), Contains("element types must be equal"));
  CHECK_THAT(refusal([&] { product_of(n, n, matrix_axes("f32")); }),
             Contains("out_dtype and accumulate are for operands of floating-point types"));
  CHECK_THAT(refusal([&] { product_of(x, x, matrix_axes("", "f16")); }),
             Contains("accumulate is f32 or f64, not 'f16'"));
  CHECK_THAT(refusal([&] { product_of(x, d, matrix_axes("", "f32")); }), Contains("f64 is not summed in f32"));
  CHECK_THAT(refusal([&] { product_of(x, x, matrix_axes("i32")); }), Contains("out_dtype is a floating-point type"));
  CHECK_THAT(refusal([&] { product_of(x, x, matrix_axes("f33")); }), Contains("f33"));
  CHECK_THAT(refusal([&] { product_of(x, x, matrix_axes("q8_0")); }), Contains("out_dtype is a floating-point type"));
}

TEST_CASE("mixed products: gradients have the types of their operands") {
  for (const DType left : kNarrow)
    for (const DType right : {DType::F32, DType::BF16, DType::F64}) {
      CAPTURE(dtype_name(left), dtype_name(right));
      Tracer t("gradient");
      const HTensor a = t.input("a", {left, {3, 5}}), b = t.input("b", {right, {5, 2}});
      const HTensor y = product_of(a, b, matrix_axes("f64"));
      const std::vector<HTensor> found = gradient(t, reduce_sum(y * y, {0, 1}), {a, b});
      t.output("da", found[0]);
      t.output("db", found[1]);
      const Program p = t.take();
      const std::map<std::string, HTensor> given{{"a", cast(rising({3, 5}, 0.7f), left)},
                                                 {"b", cast(rising({5, 2}, 0.4f), right)}};
      const Values got = interpret(p, given);
      CHECK(got[0].dtype() == left);
      CHECK(got[1].dtype() == right);
      const HTensor wide_a = cast(given.at("a"), DType::F64), wide_b = cast(given.at("b"), DType::F64),
                    dy = product_of(wide_a, wide_b, matrix_axes()) * 2.0;
      const std::vector<double> da = doubles(dot(dy, wide_b, {1}, {1})), is = doubles(got[0]);
      for (size_t i = 0; i < da.size(); ++i)
        CHECK(is[i] == Approx(da[i]).margin(left == DType::BF16 ? 0.1 : left == DType::F16 ? 0.02 : 1e-4));
    }
}

TEST_CASE("mixed products: text and its types") {
  Tracer t("text");
  t.output("y", product_of(t.input("a", {DType::BF16, {3, 5}}), t.input("b", {DType::F32, {5, 2}}),
                           matrix_axes("f16", "f64")));
  const std::string text = print(t.take());
  CHECK_THAT(text, Contains("accumulate = \"f64\"") && Contains("out_dtype = \"f16\"") && Contains("f16[3, 2] = dot"));
  CHECK(print(parse_program(text, "text")) == text);
}

TEST_CASE("linear: the result, its sums and its operands have types of their own") {
  const HTensor x = rising({3, 64}, 0.3f), w = rising({5, 64}, 0.2f), bias = rising({5}, 0.9f);
  for (const DType of_x : kNarrow)
    for (const DType of_w : {DType::F16, DType::BF16, DType::F32, DType::Q8_0})
      for (const std::string out : {"", "f16", "bf16", "f32", "f64"}) {
        CAPTURE(dtype_name(of_x), dtype_name(of_w), out);
        // products of one type with a bias of that type
        if (of_x == of_w && (out.empty() || dtype_named(out) == of_x)) continue;
        AttributeMap a = text_attribute("activation", "tanh");
        if (!out.empty()) a.set("out_dtype", out);
        const HTensor xs = cast(x, of_x), ws = cast(w, of_w), y = map_of({xs, ws, bias}, a);
        CHECK(y.dtype() == (out.empty() ? of_x : dtype_named(out)));
        const HTensor same =
            map_of({cast(xs, DType::F32), cast(ws, DType::F32), bias}, text_attribute("activation", "tanh"));
        CHECK(doubles_of_rounded(same, y.dtype()) == doubles(y));
      }
  CHECK(map_of({cast(x, DType::F64), w}, {}).dtype() == DType::F64);
  const HTensor big = f32({1, 3}, {16777216, 1, 1}), ones = f32({1, 3}, {1, 1, 1});
  CHECK(doubles(map_of({big, ones}, {})) == std::vector<double>{16777216});
  CHECK(doubles(map_of({big, ones}, text_attribute("accumulate", "f64"))) == std::vector<double>{16777218});
}

TEST_CASE("linear: activation_type quantises each row of x, and its gradient is that of x") {
  const HTensor x = rising({3, 64}, 0.3f), w = rising({5, 64}, 0.2f);
  const AttributeMap q8 = text_attribute("activation_type", "q8_0");
  const HTensor rounded = cast(cast(x, DType::Q8_0), DType::F32);
  for (const DType of_w : {DType::F32, DType::BF16, DType::Q8_0, DType::Q4_0}) {
    CAPTURE(dtype_name(of_w));
    const HTensor ws = cast(w, of_w), y = map_of({x, ws}, q8);
    CHECK(doubles(y) == doubles(map_of({rounded, cast(ws, DType::F32)}, {})));
    CHECK(doubles(y) != doubles(map_of({x, cast(ws, DType::F32)}, {})));
  }
  const Values out = apply("linear", q8, {x, w});
  const HTensor dy = rising({3, 5}, 1.1f);
  const FunctionalPtr f = FunctionalTable::global().find("linear");
  const Values with = f->gradient(q8, std::vector<HTensor>{x, w}, out, std::vector<HTensor>{dy}),
               without = f->gradient({}, std::vector<HTensor>{rounded, w}, out, std::vector<HTensor>{dy});
  CHECK(doubles(with[0]) == doubles(without[0]));
  CHECK(doubles(with[1]) == doubles(without[1]));
  CHECK(map_of({cast(x, DType::BF16), cast(w, DType::Q8_0)}, q8).dtype() == DType::BF16);
}

TEST_CASE("linear: types that do not fit are refused with the rule") {
  const HTensor x = rising({3, 48}, 0.3f), w = rising({5, 48}, 0.2f), n = i64({1, 48}, std::vector<int64_t>(48, 1));
  CHECK_THAT(refusal([&] {
               map_of({x, w}, text_attribute("activation_type", "q8_0"));
             }),
             Contains("blocks of 32") && Contains("f32[3, 48]"));
  CHECK_THAT(refusal([&] { map_of({x, w}, text_attribute("activation_type", "q4_0")); }), Contains("activation_type"));
  CHECK_THAT(refusal([&] { map_of({x, w}, text_attribute("out_dtype", "i32")); }), Contains("out_dtype"));
  CHECK_THAT(refusal([&] { map_of({n, n}, text_attribute("accumulate", "f32")); }), Contains("are for floats"));
  CHECK_THAT(refusal([&] {
               map_of({cast(x, DType::F64), w}, text_attribute("accumulate", "f32"));
             }),
             Contains("f64 is not summed in f32"));
}

TEST_CASE("embedding: rows of any table in the type that out_dtype names") {
  const HTensor table = rising({4, 32}, 0.3f), ids = i64({3}, {2, 0, 2});
  for (const DType kept : {DType::F32, DType::F16, DType::BF16, DType::Q8_0})
    for (const std::string out : {"", "f16", "bf16", "f32", "f64"}) {
      CAPTURE(dtype_name(kept), out);
      const AttributeMap a = out.empty() ? AttributeMap() : text_attribute("out_dtype", out);
      const HTensor held = cast(table, kept), rows = apply("embedding", a, {held, ids}).at(0);
      CHECK(rows.dtype() == (!out.empty() ? dtype_named(out) : is_stored(kept) ? DType::F32 : kept));
      CHECK(doubles(rows) == doubles_of_rounded(gather(cast(held, DType::F32), ids, 0), rows.dtype()));
      if (is_stored(kept)) continue;
      const FunctionalPtr f = FunctionalTable::global().find("embedding");
      const Values gradient = f->gradient(a, std::vector<HTensor>{held, ids}, std::vector<HTensor>{rows},
                                          std::vector<HTensor>{full(rows.dtype(), {3, 32}, 1)});
      CHECK(gradient[0].dtype() == kept);
      CHECK(doubles(gradient[0])[64] == 2);  // row 2 was read twice
    }
  CHECK_THAT(refusal([&] {
               apply("embedding", text_attribute("out_dtype", "f32"), {i64({3, 2}, {1, 2, 3, 4, 5, 6}), ids});
             }),
             Contains("out_dtype is for tables of floats"));
}
