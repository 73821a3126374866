// Blocks of an f32 scale and 64 elements: the 4-bit types of bitsandbytes (Dettmers et al. 2023), and f8_e4m3.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include <harmonics/element_bits.hpp>

namespace harmonics {

namespace detail {

HARMONICS_FACE inline constexpr int scaled_block = 64;

HARMONICS_FACE inline float load_f32(const uint8_t* p) {
  float v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
HARMONICS_FACE inline void store_f32(uint8_t* p, float v) { std::memcpy(p, &v, sizeof v); }

// Returns the largest magnitude of a block; NaN if an element is not finite.
HARMONICS_FACE inline float largest_magnitude(const float* from) {
  float most = 0;
  for (int i = 0; i < scaled_block; ++i) {
    if (!std::isfinite(from[i])) return float_of(0x7fc00000u);
    most = std::fmax(most, std::fabs(from[i]));
  }
  return most;
}

// The codes of four_bit_floats sorted by value.
HARMONICS_FACE inline constexpr uint8_t four_bit_order[16] = {11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3};

HARMONICS_FACE inline void decode_four_bits(const uint8_t* block, const float* numbers, float* to) {
  const float scale = load_f32(block);
  for (int i = 0; i < scaled_block / 2; ++i) {
    to[2 * i] = scale * numbers[block[4 + i] >> 4];
    to[2 * i + 1] = scale * numbers[block[4 + i] & 15];
  }
}

// Encodes each element as the nearest number; the midpoint of two numbers is rounded to the lower. `sorted`: position
// in ascending order -> code.
template <typename Sorted>
HARMONICS_FACE inline void encode_four_bits(const float* from, const float* numbers, Sorted sorted, uint8_t* block) {
  const float most = largest_magnitude(from), inverse = 1 / std::fmax(most, 1e-38f);
  store_f32(block, most);
  const auto code = [&](float x) {
    const float scaled = std::fmin(std::fmax(x * inverse, -1.0f), 1.0f);
    int i = 0;
    while (i < 15 && scaled > (numbers[sorted(i)] + numbers[sorted(i + 1)]) / 2) ++i;
    return sorted(i);
  };
  for (int i = 0; i < scaled_block / 2; ++i)
    block[4 + i] = most != most ? uint8_t{0} : static_cast<uint8_t>(code(from[2 * i]) << 4 | code(from[2 * i + 1]));
}

// ---- nf4_64

HARMONICS_FACE inline void decode_nf4_64(const uint8_t* block, float* to) {
  decode_four_bits(block, normal_quantiles, to);
}
HARMONICS_FACE inline void encode_nf4_64(const float* from, uint8_t* block) {
  encode_four_bits(
      from, normal_quantiles, [](int i) { return i; }, block);
}

// ---- fp4_64

HARMONICS_FACE inline void decode_fp4_64(const uint8_t* block, float* to) {
  decode_four_bits(block, four_bit_floats, to);
}
HARMONICS_FACE inline void encode_fp4_64(const float* from, uint8_t* block) {
  encode_four_bits(
      from, four_bit_floats, [](int i) { return int{four_bit_order[i]}; }, block);
}

// ---- e4m3_64: the largest magnitude is mapped to 448

HARMONICS_FACE inline void decode_e4m3_64(const uint8_t* block, float* to) {
  const float scale = load_f32(block);
  for (int i = 0; i < scaled_block; ++i) to[i] = scale * e4m3_to_float(block[4 + i]);
}
HARMONICS_FACE inline void encode_e4m3_64(const float* from, uint8_t* block) {
  const float scale = largest_magnitude(from) / 448, inverse = scale > 0 ? 1 / scale : 0;
  store_f32(block, scale);
  for (int i = 0; i < scaled_block; ++i)
    block[4 + i] =
        scale != scale ? uint8_t{0} : float_to_e4m3(std::fmin(std::fmax(from[i] * inverse, -448.0f), 448.0f));
}

}  // namespace detail

}  // namespace harmonics
