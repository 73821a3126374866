// Packs operands by AVX-512 conversions to fp16. Private to the including translation unit.
#pragma once

#include <immintrin.h>

#include "layout.hpp"
#include "../stored_floats.hpp"
#include "../word_transpose.hpp"

namespace harmonics::cpu::half {
namespace {

#define HM_HALF_INLINE [[gnu::always_inline]] static inline

HM_HALF_INLINE __mmask16 lanes(int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffff : n <= 0 ? 0 : (1 << n) - 1);
}

// Returns the maximum of the magnitudes. Ignores NaN in x, which must not affect the scale and propagates to the result
// anyway.
HM_HALF_INLINE __m512 larger(__m512 x, __m512 largest) { return _mm512_max_ps(_mm512_abs_ps(x), largest); }

// Returns the powers of two that scale the magnitudes below 2^kLimit, and stores the exponents that undo them.
template <int kLimit>
HM_HALF_INLINE __m512 scales(__m512 largest, float* exponents) {
  const __m512i exponent =
      _mm512_sub_epi32(_mm512_srli_epi32(_mm512_castps_si512(largest), 23), _mm512_set1_epi32(127));
  __m512i to = _mm512_sub_epi32(_mm512_set1_epi32(kLimit - 1), exponent);
  to = _mm512_min_epi32(to, _mm512_set1_epi32(126));
  to = _mm512_maskz_mov_epi32(_mm512_cmp_ps_mask(largest, _mm512_setzero_ps(), _CMP_NEQ_UQ), to);
  _mm512_store_ps(exponents, _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), to)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(to, _mm512_set1_epi32(127)), 23));
}

HM_HALF_INLINE __m256i rounded(__m512 x) { return (__m256i)_mm512_cvtxps_ph(x); }
HM_HALF_INLINE __m512i pairs(__m512 x) {
  const __m512i words = _mm512_cvtepu16_epi32(rounded(x));
  return _mm512_or_si512(words, _mm512_slli_epi32(words, 16));
}
HM_HALF_INLINE __m512i joined(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
// Returns the indices of 16 pairs from number `first` on.
HM_HALF_INLINE __m512i pairs_from(int first) {
  const __m512i each = _mm512_set_epi16(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4,
                                        4, 3, 3, 2, 2, 1, 1, 0, 0);
  return _mm512_add_epi16(each, _mm512_set1_epi16(static_cast<short>(first)));
}

// Returns the maximum magnitude of a row of `depth` numbers. Fetches a later row meanwhile, since the hardware does not
// fetch ahead from row to row.
template <typename Loads>
HM_HALF_INLINE float largest_along(const typename Loads::Number* from, int64_t depth, int64_t stride) {
  constexpr int64_t kAhead = 4;
  __m512 most[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  const auto* const later = from + kAhead * stride;
  int64_t k = 0;
  for (; k + 64 <= depth; k += 64)
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      __builtin_prefetch(later + k + 16 * v);
      most[v] = larger(Loads::load(from + k + 16 * v, 0xffff), most[v]);
    }
  for (; k < depth; k += 16) most[0] = larger(Loads::load(from + k, lanes(depth - k)), most[0]);
  return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(most[0], most[1]), _mm512_max_ps(most[2], most[3])));
}

// A strip of rows that are contiguous.
void pack_rows_along(const RoundedOperand& x, int64_t i, uint32_t* to) {
  alignas(64) float most[16] = {}, scale[16];
  const int64_t used = x.count - i < kHalfRows ? x.count - i : kHalfRows;
  const float* const from = x.at(i);
  for (int64_t r = 0; r < used; ++r) most[r] = largest_along<PlainFloats>(from + r * x.stride, x.depth, x.stride);
  _mm512_store_ps(scale, scales<kHalfLimitOfA>(_mm512_load_ps(most), reinterpret_cast<float*>(to)));
  to += kHalfExponentsOfA;
  for (int64_t r = 0; r < kHalfRows; ++r, to += kHalfRowStride) {
    const float* const row = from + r * x.stride;
    const __m512 by = _mm512_set1_ps(scale[r]);
    int64_t k = 0;
    if (r >= used)
      for (; k < x.depth; k += 16) _mm512_storeu_si512(to + k, _mm512_setzero_si512());
    const __m512i low = pairs_from(0), high = pairs_from(16);
    for (; k + 32 <= x.depth; k += 32) {
      const __m512i halves = joined(rounded(_mm512_mul_ps(_mm512_loadu_ps(row + k), by)),
                                    rounded(_mm512_mul_ps(_mm512_loadu_ps(row + k + 16), by)));
      _mm512_storeu_si512(to + k, _mm512_permutexvar_epi16(low, halves));
      _mm512_storeu_si512(to + k + 16, _mm512_permutexvar_epi16(high, halves));
    }
    for (; k + 16 <= x.depth; k += 16) _mm512_storeu_si512(to + k, pairs(_mm512_mul_ps(_mm512_loadu_ps(row + k), by)));
    if (k < x.depth)
      _mm512_storeu_si512(to + k, pairs(_mm512_mul_ps(_mm512_maskz_loadu_ps(lanes(x.depth - k), row + k), by)));
  }
}

// Four strips of rows whose terms lie across memory. Together they read whole lines: terms are often a power of two
// apart, so that lines do not stay in the L1 cache.
void pack_four_across(const RoundedOperand& x, int64_t i, uint32_t* to) {
  constexpr int kStrips = 4, kVectors = kStrips * kHalfRows / 16;
  alignas(64) float exponents[16 * (kVectors + 1)];
  __m512 most[kVectors], scale[kVectors];
#pragma GCC unroll 3
  for (int v = 0; v < kVectors; ++v) most[v] = _mm512_setzero_ps();
  const float* const from = x.at(0) + i;
  for (int64_t k = 0; k < x.depth; ++k) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      const float* const at = from + k * x.depth_stride + 16 * v;
      most[v] = larger(_mm512_loadu_ps(at), most[v]);
    }
  }
#pragma GCC unroll 3
  for (int v = 0; v < kVectors; ++v) scale[v] = scales<kHalfLimitOfA>(most[v], exponents + 16 * v);
  for (int s = 0; s < kStrips; ++s) _mm512_store_ps(to + s * kHalfStripOfA, _mm512_loadu_ps(exponents + kHalfRows * s));
  to += kHalfExponentsOfA;
  const __m512i index[kStrips] = {pairs_from(0), pairs_from(kHalfRows), pairs_from(2 * kHalfRows - 16),
                                  pairs_from(3 * kHalfRows - 16)};
  for (int64_t k = 0; k < x.depth; ++k) {
    __m256i halves[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v)
      halves[v] = rounded(_mm512_mul_ps(_mm512_loadu_ps(from + k * x.depth_stride + 16 * v), scale[v]));
    const __m512i first = joined(halves[0], halves[1]), last = joined(halves[1], halves[2]);
#pragma GCC unroll 4
    for (int s = 0; s < kStrips; ++s)
      _mm512_store_si512(to + s * kHalfStripOfA + k * kHalfTermStride,
                         _mm512_permutexvar_epi16(index[s], s < 2 ? first : last));
  }
}

// A single strip, which may be incomplete.
void pack_rows_across(const RoundedOperand& x, int64_t i, uint32_t* to) {
  const __mmask16 some = lanes(x.count - i < kHalfRows ? x.count - i : kHalfRows);
  const float* const from = x.at(0) + i;
  __m512 most = _mm512_setzero_ps();
  for (int64_t k = 0; k < x.depth; ++k) most = larger(_mm512_maskz_loadu_ps(some, from + k * x.depth_stride), most);
  const __m512 scale = scales<kHalfLimitOfA>(most, reinterpret_cast<float*>(to));
  to += kHalfExponentsOfA;
  for (int64_t k = 0; k < x.depth; ++k)
    _mm512_store_si512(to + k * kHalfTermStride,
                       pairs(_mm512_mul_ps(_mm512_maskz_loadu_ps(some, from + k * x.depth_stride), scale)));
}

// A strip of columns whose terms lie across memory, in the rows of B.
template <typename Loads>
void pack_columns_across(const RoundedOperand& x, int64_t j, uint32_t* to) {
  constexpr int kVectors = kHalfColumns / 16;
  __mmask16 some[kVectors];
  __m512 most[kVectors], scale[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) some[v] = lanes(x.count - j - 16 * v), most[v] = _mm512_setzero_ps();
  const auto* const from = static_cast<const typename Loads::Number*>(x.from) + j;
  for (int64_t k = 0; k < x.depth; ++k) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const auto* const at = from + k * x.depth_stride + 16 * v;
      most[v] = larger(Loads::load(at, some[v]), most[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) scale[v] = scales<kHalfLimitOfB>(most[v], reinterpret_cast<float*>(to) + 16 * v);
  auto* const halves = reinterpret_cast<uint16_t*>(to + kHalfExponentsOfB);
  for (int64_t k = 0; k < x.depth; ++k)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      _mm256_store_si256(reinterpret_cast<__m256i*>(halves + k * kHalfColumns + 16 * v),
                         rounded(_mm512_mul_ps(Loads::load(from + k * x.depth_stride + 16 * v, some[v]), scale[v])));
}

// Loads 32 terms of a column, scaled: pairs of adjacent terms.
template <typename Loads>
HM_HALF_INLINE __m512i term_pairs(const typename Loads::Number* from, float scale, int64_t left) {
  const __m512 by = _mm512_set1_ps(scale);
  const __m512 low = Loads::load(from, lanes(left)), high = Loads::load(from + 16, lanes(left - 16));
  return _mm512_inserti64x4(_mm512_castsi256_si512(rounded(_mm512_mul_ps(low, by))), rounded(_mm512_mul_ps(high, by)),
                            1);
}

// A strip of columns that are contiguous. Terms are moved in pairs, then separated.
template <typename Loads>
void pack_columns_along(const RoundedOperand& x, int64_t j, uint32_t* to) {
  alignas(64) float most[kHalfColumns] = {}, scale[kHalfColumns];
  const int64_t used = x.count - j < kHalfColumns ? x.count - j : kHalfColumns;
  const auto* const from = static_cast<const typename Loads::Number*>(x.from) + j * x.stride;
  for (int64_t c = 0; c < used; ++c) most[c] = largest_along<Loads>(from + c * x.stride, x.depth, x.stride);
  for (int64_t c = 0; c < kHalfColumns; c += 16)
    _mm512_store_ps(scale + c, scales<kHalfLimitOfB>(_mm512_load_ps(most + c), reinterpret_cast<float*>(to) + c));
  auto* const halves = reinterpret_cast<uint16_t*>(to + kHalfExponentsOfB);
  const __m512i even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24,
                                        22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0),
                odd = _mm512_add_epi16(even, _mm512_set1_epi16(1));
  for (int64_t half = 0; half < kHalfColumns; half += 32)
    for (int64_t k = 0; k < x.depth; k += 32) {
      __m512i left[16], right[16];
#pragma GCC unroll 16
      for (int c = 0; c < 16; ++c) {
        const int64_t at = half + c, beside = at + 16;
        left[c] =
            at < used ? term_pairs<Loads>(from + at * x.stride + k, scale[at], x.depth - k) : _mm512_setzero_si512();
        right[c] = beside < used ? term_pairs<Loads>(from + beside * x.stride + k, scale[beside], x.depth - k)
                                 : _mm512_setzero_si512();
      }
      transpose_words(left);
      transpose_words(right);
      uint16_t* const row = halves + k * kHalfColumns + half;  // rows beyond the depth are padding
#pragma GCC unroll 16
      for (int n = 0; n < 16; ++n) {
        _mm512_store_si512(row + 2 * n * kHalfColumns, _mm512_permutex2var_epi16(left[n], even, right[n]));
        _mm512_store_si512(row + (2 * n + 1) * kHalfColumns, _mm512_permutex2var_epi16(left[n], odd, right[n]));
      }
    }
}

void pack_operand(const RoundedOperand& x, uint32_t* to, int64_t) {
  const bool is_along = x.depth_stride == 1;
  if (x.is_b) {
    with_loads(x.type, [&](auto loads) {
      using Loads = decltype(loads);
      for (int64_t j = 0; j < x.count; j += kHalfColumns, to += kHalfStripOfB)
        is_along ? pack_columns_along<Loads>(x, j, to) : pack_columns_across<Loads>(x, j, to);
    });
    return;
  }
  int64_t i = 0;
  if (!is_along)
    for (; i + 4 * kHalfRows <= x.count; i += 4 * kHalfRows, to += 4 * kHalfStripOfA) pack_four_across(x, i, to);
  for (; i < x.count; i += kHalfRows, to += kHalfStripOfA)
    is_along ? pack_rows_along(x, i, to) : pack_rows_across(x, i, to);
}

}  // namespace
}  // namespace harmonics::cpu::half
