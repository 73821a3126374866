// Conversion between f16 or bf16 in memory and f32 in vectors; rounds to nearest, ties to even.
#pragma once

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

#if defined(__AVX512F__)
HM_INLINE vf load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p)));
}
HM_INLINE vf load_f16_part(const uint16_t* p, int64_t n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1), p));
}
HM_INLINE void store_f16_part(uint16_t* p, vf v, int64_t n) {
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1), _mm512_cvtps_ph(v, 8));
}
HM_INLINE void store_f16(uint16_t* p, vf v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(p), _mm512_cvtps_ph(v, 8));
}
#elif defined(__AVX2__)
HM_INLINE vf load_f16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p)));
}
HM_INLINE void store_f16(uint16_t* p, vf v) {
  _mm_storeu_si128(reinterpret_cast<__m128i_u*>(p), _mm256_cvtps_ph(v, 8));
}
#else
// A subnormal f16 becomes a subnormal f32, which the product normalises.
HM_INLINE vf load_f16(const uint16_t* p) {
  vi h{};
  for (int i = 0; i < kWidth; ++i) h[i] = p[i];
  const vi size = (h & 0x7fff) << 13, sign = (h & 0x8000) << 16;
  const vi number = bits(as_float(size) * 0x1p112f), beyond = size | 0x7f800000;
  return as_float((size >= splat_int(0x0f800000) ? beyond : number) | sign);
}
HM_INLINE uint16_t f16_of(float x) {
  uint32_t b;
  __builtin_memcpy(&b, &x, sizeof b);
  const uint32_t sign = b >> 16 & 0x8000, size = b & 0x7fffffff;
  uint32_t h;
  if (size > 0x7f800000) {
    h = 0x7e00 | (size >> 13 & 0x3ff);
  } else if (size >= 0x477ff000) {
    h = 0x7c00;
  } else if (size < 0x38800000) {  // subnormal f16: adding 1/2 rounds to its unit, the last place of 1/2
    float near;
    __builtin_memcpy(&near, &size, sizeof near);
    near += 0.5f;
    __builtin_memcpy(&h, &near, sizeof h);
    h -= 0x3f000000;
  } else {
    h = (size + 0xfff + (size >> 13 & 1) - (112u << 23)) >> 13;
  }
  return static_cast<uint16_t>(sign | h);
}
HM_INLINE void store_f16(uint16_t* p, vf v) {
  for (int i = 0; i < kWidth; ++i) p[i] = f16_of(v[i]);
}
#endif

#if !defined(__AVX512F__)
HM_INLINE vf load_f16_part(const uint16_t* p, int64_t n) {
  uint16_t all[kWidth] = {};
  __builtin_memcpy(all, p, static_cast<size_t>(n) * sizeof *p);
  return load_f16(all);
}
HM_INLINE void store_f16_part(uint16_t* p, vf v, int64_t n) {
  uint16_t all[kWidth];
  store_f16(all, v);
  __builtin_memcpy(p, all, static_cast<size_t>(n) * sizeof *p);
}
#endif

// Widens n elements.
[[maybe_unused]] void widen_f16(const uint16_t* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(to + i, load_f16(from + i));
  if (i < n) store_part(to + i, load_f16_part(from + i, n - i), n - i);
}
[[maybe_unused]] void narrow_f16(const float* from, uint16_t* to, int64_t n) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store_f16(to + i, load(from + i));
  if (i < n) store_f16_part(to + i, load_part(from + i, n - i), n - i);
}

// ---- bf16

#if defined(__AVX512F__)
HM_INLINE vf of_bf16(__m256i bits) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)); }
HM_INLINE vf load_bf16(const uint16_t* p) { return of_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p))); }
HM_INLINE vf load_bf16_part(const uint16_t* p, int64_t n) {
  return of_bf16(_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1), p));
}
#else
HM_INLINE vf load_bf16(const uint16_t* p) {
#if defined(__AVX2__)
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
#else
  vi h{};
  for (int i = 0; i < kWidth; ++i) h[i] = p[i];
  return as_float(h << 16);
#endif
}
HM_INLINE vf load_bf16_part(const uint16_t* p, int64_t n) {
  uint16_t all[kWidth] = {};
  __builtin_memcpy(all, p, static_cast<size_t>(n) * sizeof *p);
  return load_bf16(all);
}
#endif

// Convert n elements.
[[maybe_unused]] void widen_bf16(const uint16_t* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(to + i, load_bf16(from + i));
  if (i < n) store_part(to + i, load_bf16_part(from + i, n - i), n - i);
}
// NaN stays NaN.
[[maybe_unused]] void narrow_bf16(const float* from, uint16_t* to, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    uint32_t b;
    __builtin_memcpy(&b, from + i, sizeof b);
    const uint32_t rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
    to[i] = static_cast<uint16_t>((b & 0x7fffffffu) > 0x7f800000u ? (b >> 16) | 0x40u : rounded);
  }
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
