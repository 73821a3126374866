// q8_0 in memory, f32 in vectors: blocks of 32 signed bytes behind a scale in f16, with the bits of the reference
// conversion.
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

// n floats, whole blocks.
[[maybe_unused]] void widen_q8_0(const char* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kEightBlock, from += kEightBytes) {
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    const vf scale = splat(load_f16_part(&half, 1)[0]);
#pragma GCC unroll 8
    for (int64_t v = 0; v < kEightBlock; v += kWidth) store(to + i + v, scale * floats_of_bytes(from + 2 + v));
  }
}

// Ties go away from zero, for magnitudes below 2^22.
HM_INLINE vf round_away(vf t) {
#if defined(__AVX512F__)
  asm("" : "+v"(t));  // the product that t is must be rounded before the sum
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

[[maybe_unused]] void narrow_q8_0(const float* from, char* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kEightBlock, from += kEightBlock, to += kEightBytes) {
    vf most{};
    vi finite = splat_int(-1);
    for (int64_t v = 0; v < kEightBlock; v += kWidth) {
      const vf size = vabs(load(from + v));
      finite &= size < __builtin_inff();
      most = vmax(size, most);
    }
    if (any(~finite)) {
      const uint16_t none = 0x7e00;  // all of the block reads as NaN
      std::memset(to, 0, kEightBytes);
      std::memcpy(to, &none, sizeof none);
      continue;
    }
    const float scale = max_of(most) / 127, inverse = scale > 0 ? 1 / scale : 0;
    uint16_t half;
    store_f16_part(&half, splat(scale), 1);
    std::memcpy(to, &half, sizeof half);
    alignas(64) float steps[kEightBlock];
    for (int64_t v = 0; v < kEightBlock; v += kWidth)
      store(steps + v, vmin(splat(127.0f), vmax(splat(-127.0f), round_away(load(from + v) * inverse))));
    for (int64_t j = 0; j < kEightBlock; ++j) to[2 + j] = static_cast<char>(static_cast<int8_t>(steps[j]));
  }
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
