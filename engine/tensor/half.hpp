// The two 16-bit floats as C++ types that convert to and from float, rounding to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace harmonics {

inline float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, rest = bits & 0x7FFFu;
  if (rest >= 0x7C00u) return std::bit_cast<float>(sign | 0x7F800000u | (rest & 0x3FFu) << 13);
  if (rest >= 0x400u) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
  const float magnitude = static_cast<float>(rest) * 0x1p-24f;  // subnormal
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

inline uint16_t float_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), rest = bits & 0x7FFFFFFFu;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  if (rest > 0x7F800000u) return sign | 0x7E00u | static_cast<uint16_t>(rest >> 13 & 0x3FFu);
  if (rest >= 0x477FF000u) return sign | 0x7C00u;  // rounds past 65504
  if (rest < 0x38800000u) {                        // subnormal: an addition rounds it to steps of 2^-24
    const float magnitude = std::bit_cast<float>(rest) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(magnitude) - 0x3F000000u);
  }
  return sign | static_cast<uint16_t>((rest - 0x38000000u + 0xFFFu + (rest >> 13 & 1u)) >> 13);
}

inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float value) : bits(float_to_f16(value)) {}
  operator float() const { return f16_to_float(bits); }
};

struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) : bits(float_to_bf16(value)) {}
  operator float() const { return bf16_to_float(bits); }
};

}  // namespace harmonics
