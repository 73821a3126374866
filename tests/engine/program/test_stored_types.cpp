// Stored element types: the operations that accept them, and rejection by all others.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

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

// Returns every element type for which `columns` elements are whole blocks.
std::vector<DType> stored_types(int64_t columns) {
  std::vector<DType> found;
  for (uint32_t i = 0; i < detail::element_type_count; ++i)
    if (const ElementType& type = *find_element_type(i); is_stored(type.dtype) && columns % type.block == 0)
      found.push_back(type.dtype);
  return found;
}
// Returns whether quantising decoded values again gives the same values.
bool keeps_numbers(DType type) {
  for (const DType searched : {DType::Q2_K, DType::Q3_K, DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::IQ4_NL,
                               DType::IQ4_XS, DType::Q4_1, DType::Q5_1, DType::E4M3_64})
    if (type == searched) return false;
  return true;
}

HTensor waves(const Shape& shape, float step = 0.37f) {
  HTensor x(DType::F32, shape);
  for (int64_t i = 0; i < x.size(); ++i) x.mutable_data<float>()[i] = std::sin(step * static_cast<float>(i));
  return x;
}
HTensor one(const char* name, const std::vector<HTensor>& inputs, const AttributeMap& attributes = {}) {
  return apply(name, attributes, inputs).at(0);
}
std::vector<double> gradient_of(const char* name, size_t which, const std::vector<HTensor>& in, const HTensor& dy) {
  const Values out = apply(name, {}, in);
  const HTensor d = FunctionalTable::global().find(name)->gradient({}, in, out, std::vector<HTensor>{dy})[which];
  return d ? doubles(d) : std::vector<double>{};
}

}  // namespace

TEST_CASE("stored types: every other operation refuses them") {
  const HTensor block(DType::Q8_0, {2, 32}), byte(DType::F8_E4M3, {2, 32});
  for (const OpRow& row : op_rows()) {
    if (!find_op(row.name) || row.op == Op::cast || row.op == Op::gather || row.op == Op::stop_gradient) continue;
    if (row.op == Op::full || row.op == Op::iota || row.op == Op::random_uniform) continue;
    CAPTURE(row.name);
    for (const HTensor& x : {block, byte}) {
      std::string all;
      for (size_t operands = 1; operands <= 4; ++operands)
        all += refusal([&] { apply(row.name, {}, std::vector<HTensor>(operands, x)); }) + "\n";
      CHECK_THAT(all, !Contains("nothing") && Contains("is a stored type: cast it to f32 first"));
    }
  }
}

TEST_CASE("stored types: results of other operations cannot be of them") {
  const auto q8 = AttributeMap().set("dtype", int64_t{HX_Q8_0}).set("shape", std::vector<int64_t>{32});
  CHECK_THAT(refusal([&] { apply("full", AttributeMap(q8).set("value", 1.0), {}); }), Contains("a stored type"));
  CHECK_THAT(refusal([&] { apply("iota", AttributeMap(q8).set("axis", int64_t{0}), {}); }), Contains("a stored type"));
  CHECK_THAT(
      refusal([] { one("bitcast", {HTensor(DType::U8, {4})}, AttributeMap().set("dtype", int64_t{HX_F8_E4M3})); }),
      Contains("a stored type"));
}

TEST_CASE("stored types: cast converts them from and to floats") {
  const HTensor x = waves({3, 256});
  for (const DType type : stored_types(256)) {
    CAPTURE(element_type(type).name);
    const HTensor stored = cast(x, type), back = cast(stored, DType::F32);
    CHECK(type_of(stored).bytes() == tensor_bytes(type, {3, 256}));
    if (keeps_numbers(type)) CHECK(doubles(cast(cast(back, type), DType::F32)) == doubles(back));
    CHECK(doubles(cast(stored, DType::F64)) == doubles(back));
    CHECK(doubles(cast(stored, DType::F16)) == doubles(cast(back, DType::F16)));
    CHECK(doubles(cast(cast(cast(x, DType::F64), type), DType::F32)) == doubles(back));
    CHECK(std::memcmp(cast(stored, type).bytes(), stored.bytes(), type_of(stored).bytes()) == 0);
  }
  CHECK_THAT(refusal([&] { cast(cast(x, DType::Q8_0), DType::I32); }),
             Contains("floating-point types only, not to i32"));
  CHECK_THAT(refusal([&] { cast(waves({3, 40}), DType::Q8_0); }), Contains("must be a multiple of 32"));
  CHECK(type_of(cast(waves({2048, 32}), DType::Q8_0)).str() == "q8_0[2048, 32]");
}

TEST_CASE("stored types: gather takes whole rows") {
  const HTensor table = cast(waves({5, 64}), DType::Q8_0), ids = i64({3}, {4, 0, 4});
  CHECK(doubles(cast(gather(table, ids, 0), DType::F32)) == doubles(gather(cast(table, DType::F32), ids, 0)));
  CHECK_THAT(refusal([&] { gather(table, ids, 1); }), Contains("only whole rows"));
}

TEST_CASE("linear: weights of stored types and of other floats") {
  const HTensor x = waves({5, 256}), bias = waves({7}, 0.9f), wide = waves({7, 256}, 0.11f), dy = waves({5, 7}, 1.3f);
  std::vector<DType> types = stored_types(256);
  types.insert(types.end(), {DType::F16, DType::BF16});
  for (const DType type : types) {
    CAPTURE(element_type(type).name);
    const HTensor weight = cast(wide, type), plain = cast(weight, DType::F32);
    const auto relu = AttributeMap().set("activation", std::string("relu"));
    const HTensor y = one("linear", {x, weight, bias}, relu);
    CHECK(y.dtype() == DType::F32);
    CHECK(doubles(y) == doubles(one("linear", {x, plain, bias}, relu)));
    CHECK(gradient_of("linear", 0, {x, weight, bias}, dy) == gradient_of("linear", 0, {x, plain, bias}, dy));
    CHECK(gradient_of("linear", 2, {x, weight, bias}, dy) == gradient_of("linear", 2, {x, plain, bias}, dy));
    const std::vector<double> dw = gradient_of("linear", 1, {x, weight}, dy);
    if (is_stored(type))
      CHECK(dw.empty());  // stored weights are frozen
    else
      CHECK(dw == doubles(cast(HTensor::from(wide.shape(), gradient_of("linear", 1, {x, plain}, dy)), type)));
    // 16-bit x gives y of its type
    const HTensor narrow = cast(x, DType::BF16), of_narrow = one("linear", {narrow, weight});
    CHECK(of_narrow.dtype() == DType::BF16);
  }
  const HTensor turned = cast(waves({256, 32}), DType::Q8_0),
                transposed = one("linear", {x, turned}, AttributeMap().set("transposed", true));
  CHECK(doubles(transposed) == doubles(dot(x, cast(turned, DType::F32), {1}, {0})));
  const HTensor bytes = cast(abs(x) * 100.0, DType::U8), q8 = cast(wide, DType::Q8_0);
  const auto scale = AttributeMap().set("scale", 0.5);
  CHECK(doubles(one("linear", {bytes, q8}, scale)) == doubles(one("linear", {bytes, cast(q8, DType::F32)}, scale)));
  CHECK(one("linear", {cast(x, DType::F64), q8}).dtype() == DType::F64);
  CHECK_THAT(refusal([&] { one("linear", {q8, q8}); }), Contains("stored type"));
}

TEST_CASE("embedding: tables of stored types give rows of f32") {
  const HTensor ids = i64({2, 2}, {4, 0, 3, 4}), wide = waves({5, 256});
  for (const DType type : stored_types(256)) {
    const HTensor table = cast(wide, type), y = one("embedding", {table, ids});
    CHECK(type_of(y) == TensorType{DType::F32, {2, 2, 256}});
    CHECK(doubles(y) == doubles(one("embedding", {cast(table, DType::F32), ids})));
  }
  CHECK(one("embedding", {cast(wide, DType::BF16), ids}).dtype() == DType::BF16);
}

TEST_CASE("stored types: the gradient of x passes through a frozen weight") {
  const auto run = [](bool stored) {
    Tracer tracer("test");
    const HTensor x = tracer.input("x", {DType::F32, {3, 32}}),
                  w = tracer.parameter("w", {stored ? DType::Q8_0 : DType::F32, {4, 32}}),
                  loss = reduce_sum(tanh(one("linear", {x, w})), {0, 1});
    tracer.output("dx", gradient(tracer, loss, {x})[0]);
    const Program program = tracer.take();
    verify(program);
    const HTensor weight = cast(waves({4, 32}, 0.7f), DType::Q8_0);
    return doubles(interpret(program, {{"x", waves({3, 32})}, {"w", stored ? weight : cast(weight, DType::F32)}})[0]);
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("stored types: programs print and parse") {
  Tracer tracer("test");
  tracer.output(
      "y", one("linear", {tracer.input("x", {DType::F32, {3, 32}}), tracer.parameter("w", {DType::Q8_0, {4, 32}})}));
  tracer.output("z", one("linear", {tracer.input("u", {DType::F32, {32}}), cast(waves({1, 32}), DType::Q8_0)}));
  tracer.output("q", cast(tracer.input("v", {DType::F32, {32}}), DType::Q8_0));
  const std::string text = print(tracer.take());
  CHECK_THAT(text, Contains("q8_0[4, 32]") && Contains("dtype = q8_0"));
  CHECK(print(parse_program(text, "test")) == text);
  std::string list = text;
  const size_t at = list.find("bytes \"");
  list.replace(at, list.find('"', at + 7) - at + 1, "[1, 2]");
  CHECK_THAT(refusal([&] { parse_program(list, "test"); }), Contains("is written as bytes"));
}
