#include <catch2/catch.hpp>

#include <cmath>

#include "numbers.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

HTensor quantized(const HTensor& x, const HTensor& scale, const HTensor& zero, int64_t axis = 0) {
  return call1("quantize", {x, scale, zero},
               Attributes().set("axis", axis).set("dtype", static_cast<int64_t>(zero.dtype())));
}
HTensor dequantized(const HTensor& q, const HTensor& scale, const HTensor& zero, int64_t axis = 0) {
  return call1("dequantize", {q, scale, zero}, Attributes().set("axis", axis));
}
HTensor whole(DType dtype, const Shape& shape, const std::vector<int64_t>& values) {
  return cast(HTensor::from(shape, values), dtype);
}

}  // namespace

TEST_CASE("quantize rounds half to even and saturates") {
  const HTensor x = f32({8}, {0, 1, 3, 5, -5, 1000, -1000, NAN});
  const HTensor y = quantized(x, f32({}, {2}), whole(DType::U8, {}, {128}));
  CHECK(y.dtype() == DType::U8);
  CHECK(doubles(y) == std::vector<double>{128, 128, 130, 130, 126, 255, 0, 128});
  CHECK(doubles(quantized(x, f32({}, {2}), whole(DType::I8, {}, {0}))) ==
        std::vector<double>{0, 0, 2, 2, -2, 127, -128, 0});
  CHECK(doubles(quantized(f32({2}, {1e30f, -1e30f}), f32({}, {1}), whole(DType::I16, {}, {0}))) ==
        std::vector<double>{32767, -32768});
}

TEST_CASE("scales along an axis") {
  const HTensor x = f32({2, 3}, {2, 4, 6, 2, 4, 6}), zero = whole(DType::I8, {3}, {0, 1, 2});
  const HTensor q = quantized(x, f32({3}, {1, 2, 3}), zero, 1);
  CHECK(doubles(q) == std::vector<double>{2, 3, 4, 2, 3, 4});
  CHECK(numbers<float>(dequantized(q, f32({3}, {1, 2, 3}), zero, 1)) == numbers<float>(x));
  const HTensor rows = quantized(x, f32({2}, {1, 2}), whole(DType::I8, {2}, {0, 0}), 0);
  CHECK(doubles(rows) == std::vector<double>{2, 4, 6, 1, 2, 3});
}

TEST_CASE("every pair of types") {
  for (const DType real : {DType::F16, DType::BF16, DType::F32, DType::F64})
    for (const DType stored : {DType::U8, DType::I8, DType::U16, DType::I16}) {
      const HTensor x = cast(f32({3}, {0, 2.5, 9}), real), scale = cast(f32({}, {0.5}), real),
                    zero = whole(stored, {}, {3});
      const HTensor q = quantized(x, scale, zero);
      CHECK(doubles(q) == std::vector<double>{3, 8, 21});
      const HTensor back = dequantized(q, scale, zero);
      CHECK(back.dtype() == real);
      CHECK(doubles(back) == std::vector<double>{0, 2.5, 9});
    }
  CHECK(doubles(dequantized(whole(DType::I32, {2}, {1000000, INT32_MIN}), f32({}, {0.5}),
                            whole(DType::I32, {}, {0}))) == std::vector<double>{500000, -1073741824});
}

TEST_CASE("bitcast keeps the bytes, and another width adds or takes the last axis") {
  const HTensor x = f32({2}, {1, -2});
  CHECK(doubles(bitcast(x, DType::U32)) == std::vector<double>{0x3f800000, 0xc0000000});
  const HTensor bytes = bitcast(x, DType::U8);
  CHECK(bytes.shape() == Shape{2, 4});
  CHECK(doubles(bytes) == std::vector<double>{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0});
  CHECK(type_of(bitcast(bytes, DType::F32)) == type_of(x));
  CHECK(doubles(bitcast(bytes, DType::F32)) == doubles(x));
  CHECK(doubles(bitcast(whole(DType::U8, {1, 2}, {0, 0x3c}), DType::F16)) == std::vector<double>{1});
  CHECK(bitcast(HTensor(DType::F64, {3, 0}), DType::I16).shape() == Shape{3, 0, 4});
  CHECK(type_of(bitcast(x, DType::F64)) == TensorType{DType::F64, {}});
  CHECK(refusal([&] {
          bitcast(f32({3}, {1, 2, 3}), DType::F64);
        }) == "shape error: bitcast: the operand is f32[3]; the last axis must be 2 elements, the bytes of one f64");
  CHECK(refusal([&] { bitcast(x, DType::Bool); }).find("type error: bitcast: ") == 0);
}

TEST_CASE("storage operations: shape and type errors") {
  const HTensor x(DType::F32, {2, 3}), scale = f32({}, {1}), zero = whole(DType::I8, {}, {0});
  CHECK(refusal([&] { quantized(x, scale, whole(DType::I32, {}, {0})); }) ==
        "type error: quantize: operands are f32[2, 3], f32[] and i32[]; the result can be u8, i8, u16 or i16, not i32");
  CHECK(refusal([&] {
          quantized(x, f32({2}, {1, 1}), whole(DType::I8, {2}, {0, 0}), 1);
        }) ==
        "shape error: quantize: operands are f32[2, 3], f32[2] and i8[2]; scale and zero point must be scalars or "
        "vectors of 3, "
        "the size of axis 1");
  CHECK(refusal([&] {
          quantized(x, f32({3}, {1, 1, 1}), zero, 1);
        }) == "shape error: quantize: operands are f32[2, 3], f32[3] and i8[]; shapes must be equal");
  CHECK(
      refusal([&] {
        call1("quantize", {x, scale, zero}, Attributes().set("axis", 0).set("dtype", static_cast<int64_t>(DType::U8)));
      }) ==
      "type error: quantize: operands are f32[2, 3], f32[] and i8[]; the zero point must be of the result's type, u8");
  CHECK(refusal([&] { dequantized(x, scale, zero); }) ==
        "type error: dequantize: operands are f32[2, 3], f32[] and i8[]; the first operand can be u8, i8, u16, i16 or "
        "i32");
}
