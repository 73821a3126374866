#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <harmonics/element_conversion.hpp>

#include "engine/tensor/value.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using Catch::Matchers::Contains;

namespace {

std::vector<DType> stored_types() {
  std::vector<DType> found;
  for (const ElementType& type : detail::element_types)
    if (is_stored(type.dtype)) found.push_back(type.dtype);
  return found;
}

// Decodes an 8-bit float by its definition.
double eight_bits(int v, int fraction_bits, int bias, bool has_infinity) {
  const int magnitude = v & 127, exponent = magnitude >> fraction_bits,
            fraction = magnitude & ((1 << fraction_bits) - 1);
  double x = NAN;
  if (has_infinity && exponent == 31)
    x = fraction ? NAN : INFINITY;
  else if (has_infinity || magnitude != 127)
    x = std::ldexp(fraction + (exponent ? 1 << fraction_bits : 0), std::max(exponent, 1) - bias - fraction_bits);
  return v & 128 ? -x : x;
}

struct EightBits {
  float (*decode)(uint8_t);
  uint8_t (*encode)(float);
  int fraction_bits, bias;
  bool has_infinity;
  double value(int v) const { return eight_bits(v, fraction_bits, bias, has_infinity); }
};
const EightBits kEightBits[] = {{e4m3_to_float, float_to_e4m3, 3, 7, false},
                                {e5m2_to_float, float_to_e5m2, 2, 15, true}};

}  // namespace

TEST_CASE("element types: rows are in the order of their numbers, names are found") {
  for (uint32_t i = 0; i < detail::element_type_count; ++i) {
    const ElementType& row = *find_element_type(i);
    CHECK(static_cast<uint32_t>(row.dtype) == i);
    CHECK(dtype_named(row.name) == row.dtype);
    CHECK(row.block_bytes * 8 >= row.bits * row.block);
  }
  CHECK(find_element_type(static_cast<uint32_t>(detail::element_type_count)) == nullptr);
  CHECK_THROWS_WITH(element_bytes(static_cast<DType>(77)), "unknown element type number 77");
  CHECK_THROWS_WITH(tensor_bytes(static_cast<DType>(77), {2}), "unknown element type number 77");
}

TEST_CASE("element types: bytes of blocks") {
  CHECK(TensorType{DType::Q8_0, {3, 64}}.bytes() == 3 * 2 * 34);
  CHECK(TensorType{DType::Q4_0, {2, 32}}.bytes() == 36);
  CHECK(TensorType{DType::Q4_K, {2, 512}}.bytes() == 4 * 144);
  CHECK(TensorType{DType::Q6_K, {256}}.bytes() == 210);
  CHECK(TensorType{DType::Q4_1, {2, 32}}.bytes() == 40);
  CHECK(TensorType{DType::Q5_0, {64}}.bytes() == 44);
  CHECK(TensorType{DType::Q5_1, {64}}.bytes() == 48);
  CHECK(TensorType{DType::Q2_K, {256}}.bytes() == 84);
  CHECK(TensorType{DType::Q3_K, {256}}.bytes() == 110);
  CHECK(TensorType{DType::Q5_K, {256}}.bytes() == 176);
  CHECK(TensorType{DType::IQ4_NL, {64}}.bytes() == 36);
  CHECK(TensorType{DType::MXFP4, {64}}.bytes() == 34);
  CHECK(TensorType{DType::IQ4_XS, {512}}.bytes() == 272);
  CHECK(TensorType{DType::NF4_64, {2, 128}}.bytes() == 144);
  CHECK(TensorType{DType::FP4_64, {64}}.bytes() == 36);
  CHECK(TensorType{DType::E4M3_64, {64}}.bytes() == 68);
  CHECK(TensorType{DType::NF4, {3, 2}}.bytes() == 3);
  CHECK(TensorType{DType::F8_E4M3, {3, 5}}.bytes() == 15);
  CHECK(TensorType{DType::Q8_0, {3, 0}}.bytes() == 0);
  CHECK(TensorType{DType::Q8_0, {3, 64}}.str() == "q8_0[3, 64]");
  CHECK(run_bytes(DType::Q8_0, 96) == 102);
}

TEST_CASE("element types: parts of blocks and elements without bytes are refused") {
  CHECK_THROWS_WITH(from_c(make_type(DType::Q8_0, {32, 40})),
                    Contains("q8_0 cannot have the shape [32, 40]") && Contains("a multiple of 32"));
  CHECK_THROWS_WITH(from_c(make_type(DType::Q8_0, {})), Contains("cannot have the shape []"));
  CHECK_THROWS_WITH((TensorType{DType::I4, {4, 3}}.bytes()), Contains("a multiple of 2"));
  CHECK_THROWS_WITH(element_bytes(DType::Q8_0), Contains("blocks of 32 elements"));
  CHECK_THROWS_WITH(run_bytes(DType::Q8_0, 33), Contains("not whole blocks"));
  CHECK_THROWS_WITH(from_c(make_type(DType::Q8_0, {int64_t{1} << 40, int64_t{1} << 40})), Contains("overflows"));
}

TEST_CASE("element types: all floats of eight bits") {
  for (const EightBits& type : kEightBits)
    for (int v = 0; v < 256; ++v) {
      CAPTURE(type.fraction_bits, v);
      const double exact = type.value(v);
      const float found = type.decode(static_cast<uint8_t>(v));
      if (std::isnan(exact)) {
        REQUIRE(std::isnan(found));
        REQUIRE(std::isnan(type.decode(type.encode(found))));
        continue;
      }
      REQUIRE(found == exact);
      REQUIRE(std::signbit(found) == (v >= 128));
      REQUIRE(int{type.encode(found)} == v);
    }
}

TEST_CASE("element types: floats of eight bits are rounded to nearest, ties to even") {
  for (const EightBits& type : kEightBits) {
    const int largest = type.has_infinity ? 0x7b : 0x7e, above = largest + 1;  // infinity or NaN
    for (int v = 0; v < largest; ++v) {
      const double low = type.value(v), high = type.value(v + 1), middle = (low + high) / 2;
      const auto near = [](double x, double to) {
        return std::nextafter(static_cast<float>(x), static_cast<float>(to));
      };
      REQUIRE(int{type.encode(static_cast<float>(middle))} == (v % 2 ? v + 1 : v));
      REQUIRE(int{type.encode(near(middle, low))} == v);
      REQUIRE(int{type.encode(near(middle, high))} == v + 1);
      REQUIRE(int{type.encode(-near(middle, high))} == ((v + 1) | 128));
    }
    const float most = static_cast<float>(type.value(largest)),
                step = most - static_cast<float>(type.value(largest - 1)), end = most + step / 2;
    CHECK(int{type.encode(end)} == (largest % 2 ? above : largest));
    CHECK(int{type.encode(std::nextafter(end, 0.0f))} == largest);
    CHECK(int{type.encode(std::nextafter(end, INFINITY))} == above);
    CHECK(int{type.encode(-INFINITY)} == (above | 128));
    CHECK(int{type.encode(-0.0f)} == 128);
  }
}

TEST_CASE("element types: f16 scales") {
  for (int h = 0; h < 65536; ++h) {
    const float f = half_to_float(static_cast<uint16_t>(h));
    if (!std::isnan(f)) REQUIRE(int{float_to_half(f)} == h);
    uint8_t block[34] = {static_cast<uint8_t>(h), static_cast<uint8_t>(h >> 8), 3, 0xfd};
    float numbers[32];
    decode_elements(DType::Q8_0, block, numbers, 32);
    if (!std::isfinite(f)) continue;
    REQUIRE(numbers[0] == f * 3);
    REQUIRE(numbers[1] == f * -3);
  }
}

TEST_CASE("element types: four bits") {
  uint8_t byte = 0;
  const float quantiles[] = {-1.0f, 0.1609f};
  encode_elements(DType::NF4, quantiles, &byte, 2);
  CHECK(int{byte} == 0x09);
  const float whole[] = {-20, 3.5f};  // saturates; rounds to even
  encode_elements(DType::I4, whole, &byte, 2);
  CHECK(int{byte} == 0x48);
  for (const DType type : {DType::NF4, DType::I4})
    for (int v = 0; v < 256; ++v) {
      const auto in = static_cast<uint8_t>(v);
      float numbers[2];
      uint8_t back = 0;
      decode_elements(type, &in, numbers, 2);
      encode_elements(type, numbers, &back, 2);
      REQUIRE(int{back} == v);
    }
}

TEST_CASE("element types: the error of quantised blocks is half a step") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 200; ++trial) {
    float x[32], y[32], most = 0;
    uint8_t block[34];
    for (float& v : x) most = std::max(most, std::fabs(v = normal(random)));
    encode_elements(DType::Q8_0, x, block, 32);
    decode_elements(DType::Q8_0, block, y, 32);
    for (int i = 0; i < 32; ++i) REQUIRE(std::fabs(x[i] - y[i]) <= most / 127 * 0.57f);  // the scale is an f16
    encode_elements(DType::Q4_0, x, block, 32);
    decode_elements(DType::Q4_0, block, y, 32);
    for (int i = 0; i < 32; ++i) REQUIRE(std::fabs(x[i] - y[i]) <= most / 8 * 1.01f);
  }
}

TEST_CASE("element types: a block with an infinity or NaN decodes to NaN") {
  for (const DType type : stored_types()) {
    const int64_t size = element_type(type).block;
    if (size < 32) continue;
    CAPTURE(element_type(type).name);
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      std::vector<float> x(static_cast<size_t>(size), 1), y(x.size());
      x[17] = bad;
      std::vector<char> block(element_type(type).block_bytes);
      encode_elements(type, x.data(), block.data(), size);
      decode_elements(type, block.data(), y.data(), size);
      for (const float v : y) REQUIRE(std::isnan(v));
    }
  }
}

TEST_CASE("element types: every stored type is quantised to and decoded, zeros exactly") {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> x(512), y(512);
  for (const DType type : stored_types()) {
    CAPTURE(element_type(type).name);
    std::vector<char> bytes(run_bytes(type, 512));
    encode_elements(type, x.data(), bytes.data(), 512);
    decode_elements(type, bytes.data(), y.data(), 512);
    for (const float v : y) REQUIRE(v == 0);
  }
  const int64_t word = 1;
  CHECK_THROWS_WITH(decode_elements(DType::I64, &word, x.data(), 1), Contains("i64 has no conversion"));
  CHECK_THROWS_WITH(decode_elements(static_cast<DType>(99), &word, x.data(), 1), Contains("unknown element type"));
}

TEST_CASE("element types: searched scales leave less error than scales of the extremes") {
  std::mt19937 random(12);
  std::normal_distribution<float> normal;
  // The root mean square error for standard normal numbers.
  const std::pair<DType, double> bounds[] = {{DType::Q2_K, 0.27},   {DType::Q3_K, 0.147},  {DType::Q4_K, 0.071},
                                             {DType::Q5_K, 0.0355}, {DType::Q6_K, 0.0175}, {DType::IQ4_NL, 0.076},
                                             {DType::IQ4_XS, 0.076}};
  for (const float deviation : {0.01f, 1.0f, 1000.0f})
    for (const auto& [type, bound] : bounds) {
      CAPTURE(element_type(type).name, deviation);
      std::vector<float> x(16384), y(x.size());
      for (float& v : x) v = deviation * normal(random);
      std::vector<char> bytes(run_bytes(type, 16384));
      encode_elements(type, x.data(), bytes.data(), 16384);
      decode_elements(type, bytes.data(), y.data(), 16384);
      double squares = 0;
      for (size_t i = 0; i < x.size(); ++i) squares += std::pow(static_cast<double>(x[i] - y[i]), 2);
      CHECK(std::sqrt(squares / 16384) < bound * static_cast<double>(deviation));
    }
}

TEST_CASE("element types: numbers that a searched block can hold are found") {
  // One scale for all; every index; the largest scale of a run.
  for (const auto& [type, lowest, highest] : {std::tuple{DType::Q4_K, 0, 15},
                                              {DType::Q5_K, 0, 31},
                                              {DType::Q2_K, 0, 3},
                                              {DType::Q6_K, -32, 31},
                                              {DType::Q3_K, -4, 3}}) {
    CAPTURE(element_type(type).name);
    std::vector<float> x(256), y(256);
    for (int i = 0; i < 256; ++i)
      x[static_cast<size_t>(i)] = static_cast<float>(lowest + i % 16 * (highest - lowest) / 15) * 63 * 0.125f;
    std::vector<char> bytes(run_bytes(type, 256));
    encode_elements(type, x.data(), bytes.data(), 256);
    decode_elements(type, bytes.data(), y.data(), 256);
    for (size_t i = 0; i < 256; ++i)
      REQUIRE(std::fabs(x[i] - y[i]) <= 2e-3f * 63 * 0.125f * static_cast<float>(highest));
  }
}
