// 16-bit floating-point types: stored as bits, converted to float for arithmetic.
#pragma once

#include <bit>
#include <cstdint>

#include <harmonics/element_conversion.hpp>

namespace harmonics::engine {

struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float f) : bits(float_to_half(f)) {}
  operator float() const { return half_to_float(bits); }
};
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float f) : bits(float_to_bfloat(f)) {}
  operator float() const { return bfloat_to_float(bits); }
};

}  // namespace harmonics::engine
