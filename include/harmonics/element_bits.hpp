// Conversion between f32 and the bits of 16-bit and 8-bit floats and of four-bit types. Rounds to nearest, ties to
// even.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include <harmonics/element_tables.hpp>
#include <harmonics/tensor.hpp>

namespace harmonics {

namespace detail {
HARMONICS_FACE inline float float_of(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}
HARMONICS_FACE inline uint32_t bits_of(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return bits;
}
}  // namespace detail

// IEEE 754 binary16.
HARMONICS_FACE inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3ffu;
  if (exponent == 31) return detail::float_of(sign | 0x7f800000u | fraction << 13);
  if (exponent) return detail::float_of(sign | (exponent + 112) << 23 | fraction << 13);
  const float tiny = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -tiny : tiny;
}

HARMONICS_FACE inline uint16_t float_to_half(float f) {
  const uint32_t bits = detail::bits_of(f), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to 65536 or more
  if (magnitude >= 0x38800000u) {
    const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | rounded >> 13);
  }
  // Subnormal: adding one half moves the fraction to where float addition rounds it.
  const float shifted = detail::float_of(magnitude) + 0.5f;
  return static_cast<uint16_t>(sign | (detail::bits_of(shifted) - 0x3f000000u));
}

HARMONICS_FACE inline float bfloat_to_float(uint16_t b) { return detail::float_of(static_cast<uint32_t>(b) << 16); }

HARMONICS_FACE inline uint16_t float_to_bfloat(float f) {
  const uint32_t bits = detail::bits_of(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// E5M2: 5 exponent bits, 2 fraction bits; the upper half of an f16.
HARMONICS_FACE inline float e5m2_to_float(uint8_t v) { return half_to_float(static_cast<uint16_t>(v << 8)); }

HARMONICS_FACE inline uint8_t float_to_e5m2(float f) {
  const uint32_t bits = detail::bits_of(f), sign = bits >> 31 << 7, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (magnitude >= 0x47700000u) return static_cast<uint8_t>(sign | 0x7cu);  // rounds to 65536 or more: infinity
  if (magnitude >= 0x38800000u)
    return static_cast<uint8_t>(sign | (magnitude - 0x38000000u + 0xfffffu + ((magnitude >> 21) & 1u)) >> 21);
  const float shifted = detail::float_of(magnitude) + 0x1p7f;  // the last bit is 2^-16
  return static_cast<uint8_t>(sign | (detail::bits_of(shifted) - 0x43000000u));
}

// E4M3: 4 exponent bits, 3 fraction bits; no infinities, one NaN of each sign, at most 448.
HARMONICS_FACE inline float e4m3_to_float(uint8_t v) {
  const uint32_t sign = static_cast<uint32_t>(v >> 7) << 31, magnitude = v & 0x7fu;
  if (magnitude == 0x7fu) return detail::float_of(sign | 0x7fc00000u);
  if (magnitude >= 8) return detail::float_of(sign | ((magnitude << 20) + (120u << 23)));
  const float tiny = static_cast<float>(magnitude) * 0x1p-9f;
  return sign ? -tiny : tiny;
}

HARMONICS_FACE inline uint8_t float_to_e4m3(float f) {
  const uint32_t bits = detail::bits_of(f), sign = bits >> 31 << 7, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x43e80000u) return static_cast<uint8_t>(sign | 0x7fu);  // above 464, or NaN
  if (magnitude >= 0x3c800000u)
    return static_cast<uint8_t>(sign | (magnitude - (120u << 23) + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20);
  const float shifted = detail::float_of(magnitude) + 0x1p14f;  // the last bit is 2^-9
  return static_cast<uint8_t>(sign | (detail::bits_of(shifted) - 0x46800000u));
}

namespace detail {

// Returns the index of the nearest quantile, of equally near ones the lower; NaN gives the index of 0.
HARMONICS_FACE inline uint8_t float_to_nf4(float x) {
  if (x != x) return 7;
  uint8_t i = 0;
  while (i < 15 && x - normal_quantiles[i] > normal_quantiles[i + 1] - x) ++i;
  return i;
}

HARMONICS_FACE inline int32_t float_to_i4(float x) {
  if (x != x) return 0;
  return static_cast<int32_t>(std::nearbyint(x < -8 ? -8.0f : x > 7 ? 7.0f : x));
}

}  // namespace detail

}  // namespace harmonics
