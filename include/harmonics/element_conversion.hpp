// Conversion between f32 and the bits of the other float and stored types. This is the reference: kernels give the
// same numbers. Rounds to nearest, ties to even, unless the format of a block says otherwise.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include <harmonics/element_type.hpp>

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

// Exponent of 5 bits, fraction of 2: the upper half of an f16.
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

// Exponent of 4 bits, fraction of 3; no infinities, one NaN of each sign, at most 448.
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

// NormalFloat 4 of Dettmers et al. 2023.
HARMONICS_FACE inline constexpr float normal_quantiles[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

// The nearest quantile, the lower one of two; NaN gives 0.
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

HARMONICS_FACE inline uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
HARMONICS_FACE inline void store_u16(uint8_t* p, uint16_t v) {
  p[0] = static_cast<uint8_t>(v);
  p[1] = static_cast<uint8_t>(v >> 8);
}

// ---- q8_0: the scale in f16, then 32 signed bytes

HARMONICS_FACE inline void decode_q8_0(const uint8_t* block, float* to) {
  const float scale = half_to_float(load_u16(block));
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// Marks a block that holds a number without finite quotient: all of it decodes to NaN.
HARMONICS_FACE inline bool refuse_block(const float* from, int n, uint8_t* block, uint32_t bytes) {
  for (int i = 0; i < n; ++i) {
    if (std::isfinite(from[i])) continue;
    std::memset(block, 0, bytes);
    store_u16(block, 0x7e00u);
    return true;
  }
  return false;
}

HARMONICS_FACE inline void encode_q8_0(const float* from, uint8_t* block) {
  if (refuse_block(from, 32, block, 34)) return;
  float most = 0;
  for (int i = 0; i < 32; ++i) most = std::fmax(most, std::fabs(from[i]));
  const float scale = most / 127, inverse = scale > 0 ? 1 / scale : 0;
  store_u16(block, float_to_half(scale));
  for (int i = 0; i < 32; ++i) {
    const float steps = std::round(from[i] * inverse);  // ties away from zero
    block[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(steps < -127 ? -127.0f : steps > 127 ? 127.0f : steps));
  }
}

// ---- q4_0: the scale in f16, then 16 bytes: element i in the low bits of byte i, element i + 16 in the high bits

HARMONICS_FACE inline void decode_q4_0(const uint8_t* block, float* to) {
  const float scale = half_to_float(load_u16(block));
  for (int i = 0; i < 16; ++i) {
    to[i] = scale * static_cast<float>((block[2 + i] & 15) - 8);
    to[i + 16] = scale * static_cast<float>((block[2 + i] >> 4) - 8);
  }
}

// The element of the largest magnitude, the first of several, becomes -8.
HARMONICS_FACE inline void encode_q4_0(const float* from, uint8_t* block) {
  if (refuse_block(from, 32, block, 18)) return;
  float most = 0;
  for (int i = 0; i < 32; ++i)
    if (std::fabs(from[i]) > std::fabs(most)) most = from[i];
  const float scale = most / -8, inverse = scale != 0 ? 1 / scale : 0;
  store_u16(block, float_to_half(scale));
  const auto index = [inverse](float x) {  // x * inverse + 8.5 rounded once, as by a fused multiply-add
    const auto moved = static_cast<float>(static_cast<double>(x) * static_cast<double>(inverse) + 8.5);
    return static_cast<uint8_t>(moved < 0 ? 0.0f : moved > 15 ? 15.0f : moved);
  };
  for (int i = 0; i < 16; ++i) block[2 + i] = static_cast<uint8_t>(index(from[i]) | index(from[i + 16]) << 4);
}

// ---- q4_k: scales of the scales and of the minima in f16, eight pairs (scale, minimum) of 6 bits in 12 bytes, 128
// bytes of indices. Runs of 32 share a pair; two neighbouring runs share 32 bytes, low bits first.

HARMONICS_FACE inline void decode_q4_k(const uint8_t* block, float* to) {
  const float scales = half_to_float(load_u16(block)), minima = half_to_float(load_u16(block + 2));
  const uint8_t *packed = block + 4, *indices = block + 16;
  for (int run = 0; run < 8; ++run) {
    int scale = packed[run] & 63, minimum = packed[run + (run < 4 ? 4 : 0)] & 63;
    if (run >= 4) {  // four low bits of each in one byte, the two high bits beside the first four pairs
      scale = (packed[run + 4] & 15) | packed[run - 4] >> 6 << 4;
      minimum = packed[run + 4] >> 4 | packed[run] >> 6 << 4;
    }
    const float step = scales * static_cast<float>(scale), least = minima * static_cast<float>(minimum);
    const uint8_t* bytes = indices + run / 2 * 32;
    for (int i = 0; i < 32; ++i)
      to[32 * run + i] = step * static_cast<float>(run % 2 ? bytes[i] >> 4 : bytes[i] & 15) - least;
  }
}

// ---- q6_k: 128 bytes of low halves, 64 bytes of the two high bits, 16 scales of 8 bits, their scale in f16. Each half
// block is four runs of 32: low bits of 64 bytes, then high bits; runs of 16 share a scale.

HARMONICS_FACE inline void decode_q6_k(const uint8_t* block, float* to) {
  const float scale = half_to_float(load_u16(block + 208));
  for (int run = 0; run < 8; ++run) {
    const int half = run / 4, quarter = run % 4;
    const uint8_t *low = block + 64 * half + quarter % 2 * 32, *high = block + 128 + 32 * half,
                  *scales = block + 192 + 8 * half + 2 * quarter;
    for (int i = 0; i < 32; ++i) {
      const int four = quarter < 2 ? low[i] & 15 : low[i] >> 4, two = high[i] >> (2 * quarter) & 3;
      const float step = scale * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
      to[32 * run + i] = step * static_cast<float>((four | two << 4) - 32);
    }
  }
}

struct Conversion {
  DType dtype;
  void (*decode)(const uint8_t* block, float* to);
  void (*encode)(const float* from, uint8_t* block);  // null: none
};

// One block each.
HARMONICS_FACE inline constexpr Conversion conversions[] = {
    {DType::F16, [](const uint8_t* b, float* to) { *to = half_to_float(load_u16(b)); },
     [](const float* from, uint8_t* b) { store_u16(b, float_to_half(*from)); }},
    {DType::BF16, [](const uint8_t* b, float* to) { *to = bfloat_to_float(load_u16(b)); },
     [](const float* from, uint8_t* b) { store_u16(b, float_to_bfloat(*from)); }},
    {DType::F32, [](const uint8_t* b, float* to) { std::memcpy(to, b, 4); },
     [](const float* from, uint8_t* b) { std::memcpy(b, from, 4); }},
    {DType::F8_E4M3, [](const uint8_t* b, float* to) { *to = e4m3_to_float(*b); },
     [](const float* from, uint8_t* b) { *b = float_to_e4m3(*from); }},
    {DType::F8_E5M2, [](const uint8_t* b, float* to) { *to = e5m2_to_float(*b); },
     [](const float* from, uint8_t* b) { *b = float_to_e5m2(*from); }},
    {DType::NF4,
     [](const uint8_t* b, float* to) { to[0] = normal_quantiles[*b >> 4], to[1] = normal_quantiles[*b & 15]; },
     [](const float* from, uint8_t* b) {
       *b = static_cast<uint8_t>(float_to_nf4(from[0]) << 4 | float_to_nf4(from[1]));
     }},
    {DType::I4,
     [](const uint8_t* b, float* to) {
       to[0] = static_cast<float>(static_cast<int8_t>(*b << 4) >> 4);
       to[1] = static_cast<float>(static_cast<int8_t>(*b) >> 4);
     },
     [](const float* from, uint8_t* b) {
       *b = static_cast<uint8_t>((float_to_i4(from[0]) & 15) | (float_to_i4(from[1]) & 15) << 4);
     }},
    {DType::Q8_0, decode_q8_0, encode_q8_0},
    {DType::Q4_0, decode_q4_0, encode_q4_0},
    {DType::Q4_K, decode_q4_k, nullptr},
    {DType::Q6_K, decode_q6_k, nullptr},
};

HARMONICS_FACE inline const Conversion* find_conversion(DType dtype) {
  for (const Conversion& row : conversions)
    if (row.dtype == dtype) return &row;
  return nullptr;
}

HARMONICS_FACE inline const Conversion& need_conversion(DType dtype, int64_t count) {
  const Conversion* row = find_conversion(dtype);
  if (!row)
    throw Error(ErrorKind::Type, std::string(element_type(dtype).name) + " has no conversion to the bits of f32");
  run_bytes(dtype, count);
  return *row;
}

}  // namespace detail

// Whether encode_elements takes the type.
HARMONICS_FACE inline bool can_encode(DType dtype) {
  const detail::Conversion* row = detail::find_conversion(dtype);
  return row && row->encode;
}

// `count` elements, whole blocks, of f16, bf16, f32 or a stored type to f32.
HARMONICS_FACE inline void decode_elements(DType dtype, const void* from, float* to, int64_t count) {
  const auto& row = detail::need_conversion(dtype, count);
  const ElementType& type = element_type(dtype);
  const auto* p = static_cast<const uint8_t*>(from);
  for (int64_t i = 0; i < count; i += type.block, p += type.block_bytes) row.decode(p, to + i);
}

// The reverse. Throws for types that can only be decoded.
HARMONICS_FACE inline void encode_elements(DType dtype, const float* from, void* to, int64_t count) {
  const auto& row = detail::need_conversion(dtype, count);
  const ElementType& type = element_type(dtype);
  if (!row.encode)
    throw Error(ErrorKind::Type,
                "numbers cannot be quantised to " + std::string(type.name) + ", which can only be read")
        .note("quantise to q8_0 or q4_0, or take a file that already holds " + std::string(type.name));
  auto* p = static_cast<uint8_t*>(to);
  for (int64_t i = 0; i < count; i += type.block, p += type.block_bytes) row.encode(from + i, p);
}

}  // namespace harmonics
