// Packs operands by AVX512-BF16 conversions. Private to the including translation unit.
#pragma once

#include <immintrin.h>

#include "layout.hpp"
#include "../stored_floats.hpp"
#include "../word_transpose.hpp"

namespace harmonics::cpu::bf16 {
namespace {

#define HM_PACK_INLINE [[gnu::always_inline]] static inline

HM_PACK_INLINE __mmask16 lanes(int64_t n) {
  return static_cast<__mmask16>(n >= kStrip ? 0xffff : n <= 0 ? 0 : (1 << n) - 1);
}
// Rounds 32 numbers to bf16: `low`, then `high`.
HM_PACK_INLINE __m512i rounded(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

HM_PACK_INLINE void store_tile(uint16_t* to, const __m512i (&r)[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * kTileDepth, r[i]);
}

// Loads 32 numbers from `k` of a row or column that is contiguous along k.
template <typename Loads>
HM_PACK_INLINE __m512i along(const RoundedOperand& x, int64_t row, int64_t k) {
  const auto* p = static_cast<const typename Loads::Number*>(x.from) + row * x.stride + k;
  if (k + kTileDepth <= x.depth) return rounded(Loads::load(p, 0xffff), Loads::load(p + kStrip, 0xffff));
  const int64_t left = x.depth - k;
  return rounded(Loads::load(p, lanes(left)), Loads::load(p + kStrip, lanes(left - kStrip)));
}

template <typename Loads>
void pack_along(const RoundedOperand& x, uint16_t* to, int64_t strip) {
  const int64_t tiles = depth_tiles(x.depth);
  for (int64_t i = 0; i < x.count; i += kStrip, to += strip) {
    const int64_t used = x.count - i < kStrip ? x.count - i : kStrip;
    if (!x.is_b) {
      for (int64_t r = 0; r < kStrip; ++r)
        for (int64_t t = 0; t < tiles; ++t)
          _mm512_storeu_si512(to + t * kTileNumbers + r * kTileDepth,
                              r < used ? along<Loads>(x, i + r, t * kTileDepth) : _mm512_setzero_si512());
      continue;
    }
    for (int64_t t = 0; t < tiles; ++t) {
      __m512i r[16];
      if (used == kStrip && (t + 1) * kTileDepth <= x.depth) {
#pragma GCC unroll 16
        for (int c = 0; c < 16; ++c) {
          const auto* p = static_cast<const typename Loads::Number*>(x.from) + (i + c) * x.stride + t * kTileDepth;
          r[c] = rounded(Loads::load(p, 0xffff), Loads::load(p + kStrip, 0xffff));
        }
      } else {
        for (int c = 0; c < 16; ++c) r[c] = c < used ? along<Loads>(x, i + c, t * kTileDepth) : _mm512_setzero_si512();
      }
      transpose_words(r);
      store_tile(to + t * kTileNumbers, r);
    }
  }
}

// Loads the pairs of numbers at `k` and `k` + 1 of up to 16 adjacent rows or columns.
template <typename Loads>
HM_PACK_INLINE __m512i across(const RoundedOperand& x, int64_t i, int64_t k, __mmask16 some) {
  const __m512i interleaved = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                               6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const auto* p = static_cast<const typename Loads::Number*>(x.from) + i + k * x.depth_stride;
  const __m512 low = k < x.depth ? Loads::load(p, some) : _mm512_setzero_ps(),
               high = k + 1 < x.depth ? Loads::load(p + x.depth_stride, some) : _mm512_setzero_ps();
  return _mm512_permutexvar_epi16(interleaved, rounded(low, high));
}

template <typename Loads>
void pack_across(const RoundedOperand& x, uint16_t* to, int64_t strip) {
  const int64_t tiles = depth_tiles(x.depth);
  if (x.is_b) {  // reads memory along its rows
    for (int64_t k = 0; k < tiles * kTileDepth; k += 2)
      for (int64_t i = 0; i < x.count; i += kStrip)
        _mm512_storeu_si512(to + i / kStrip * strip + k * kStrip, across<Loads>(x, i, k, lanes(x.count - i)));
    return;
  }
  for (int64_t t = 0; t < tiles; ++t)
    for (int64_t i = 0; i < x.count; i += kStrip) {
      const __mmask16 some = lanes(x.count - i);
      __m512i r[16];
#pragma GCC unroll 16
      for (int k = 0; k < 16; ++k) r[k] = across<Loads>(x, i, t * kTileDepth + 2 * k, some);
      transpose_words(r);
      store_tile(to + i / kStrip * strip + t * kTileNumbers, r);
    }
}

void pack_operand(const RoundedOperand& x, uint32_t* words, int64_t strip_words) {
  auto* const to = reinterpret_cast<uint16_t*>(words);
  const int64_t strip = 2 * strip_words;
  with_loads(x.type, [&](auto loads) {
    using Loads = decltype(loads);
    x.depth_stride == 1 ? pack_along<Loads>(x, to, strip) : pack_across<Loads>(x, to, strip);
  });
}

}  // namespace
}  // namespace harmonics::cpu::bf16
