// Conversion between q8_0 in memory and f32 in vectors. A block is an f16 scale followed by 32 signed bytes. Results
// have the bits of the reference conversion.
#pragma once

#include <cstring>

#include "half_floats.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr int64_t kEightBlock = 32, kEightBytes = 34;  // elements and bytes of a block

HM_INLINE vf floats_of_bytes(const char* p) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p))));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(p))));
#else
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_cvtsi32_si128(four)));
#endif
}

// Widens n elements, whole blocks.
[[maybe_unused]] void widen_q8_0(const char* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kEightBlock, from += kEightBytes) {
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    const vf scale = splat(load_f16_part(&half, 1)[0]);
#pragma GCC unroll 8
    for (int64_t v = 0; v < kEightBlock; v += kWidth) store(to + i + v, scale * floats_of_bytes(from + 2 + v));
  }
}

// Rounds to nearest, ties away from zero, for magnitudes below 2^22.
HM_INLINE vf round_away(vf t) {
#if defined(__AVX512F__)
  asm("" : "+v"(t));  // prevents fusing with the product in t, which must be rounded first
#else
  asm("" : "+x"(t));
#endif
  const vf up = t + copy_sign(splat(0.49999997f), t);  // the largest number below one half
#if defined(__AVX512F__)
  return _mm512_roundscale_ps(up, 11);
#elif defined(__AVX2__)
  return _mm256_round_ps(up, 11);
#else
  return _mm_round_ps(up, 11);
#endif
}

// Stores 32 floats with integer values from -127 to 127 as bytes.
HM_INLINE void put_steps(const vf* v, int8_t* to) {
#if defined(__AVX512F__)
  for (int i = 0; i < 2; ++i)
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to + 16 * i), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v[i])));
#elif defined(__AVX2__)
  const __m256i low = _mm256_packs_epi32(_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1])),
                high = _mm256_packs_epi32(_mm256_cvtps_epi32(v[2]), _mm256_cvtps_epi32(v[3])),
                mixed = _mm256_packs_epi16(low, high);
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to),
                      _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
#else
  for (int i = 0; i < 2; ++i) {
    const vf* four = v + 4 * i;
    const __m128i low = _mm_packs_epi32(_mm_cvtps_epi32(four[0]), _mm_cvtps_epi32(four[1])),
                  high = _mm_packs_epi32(_mm_cvtps_epi32(four[2]), _mm_cvtps_epi32(four[3]));
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to + 16 * i), _mm_packs_epi16(low, high));
  }
#endif
}

// Quantises a block of 32 floats to bytes; returns the scale in f16.
HM_INLINE uint16_t eight_bits_of(const float* from, int8_t* to) {
  constexpr int kVectors = static_cast<int>(kEightBlock / kWidth);
  vf v[kVectors], most{};
  vi finite = splat_int(-1);
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    v[i] = load(from + i * kWidth);
    const vf size = vabs(v[i]);
    finite &= size < __builtin_inff();
    most = vmax(size, most);
  }
  if (any(~finite)) {
    std::memset(to, 0, kEightBlock);
    return 0x7e00;  // NaN: the whole block decodes to NaN
  }
  const float scale = max_of(most) / 127, inverse = scale > 0 ? 1 / scale : 0;
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) v[i] = vmin(splat(127.0f), vmax(splat(-127.0f), round_away(v[i] * inverse)));
  put_steps(v, to);
  uint16_t half;
  store_f16_part(&half, splat(scale), 1);
  return half;
}

[[maybe_unused]] void narrow_q8_0(const float* from, char* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kEightBlock, from += kEightBlock, to += kEightBytes) {
    int8_t steps[kEightBlock];
    const uint16_t half = eight_bits_of(from, steps);
    std::memcpy(to, &half, sizeof half);
    std::memcpy(to + sizeof half, steps, sizeof steps);
  }
}

// Returns the sum of sixteen signed bytes.
HM_INLINE int32_t sum_of_steps(const int8_t* steps) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(steps)),
                sums = _mm_sad_epu8(_mm_xor_si128(v, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_unpackhi_epi64(sums, sums))) - 16 * 128;
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
