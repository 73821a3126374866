// Transposes of small tiles in registers.
#pragma once

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

HM_INLINE void transpose_four(const float* from, int64_t from_row, float* to, int64_t to_row) {
  __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_row), c = _mm_loadu_ps(from + 2 * from_row),
         d = _mm_loadu_ps(from + 3 * from_row);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(to, a);
  _mm_storeu_ps(to + to_row, b);
  _mm_storeu_ps(to + 2 * to_row, c);
  _mm_storeu_ps(to + 3 * to_row, d);
}

#if defined(__AVX2__)
// Transposes a tile of kWidth rows and columns. Each vector is loaded from every fourth row, so that four shuffles
// complete a quarter of the columns.
HM_INLINE void transpose_whole(const float* from, int64_t from_row, float* to, int64_t to_row) {
#pragma GCC unroll 4
  for (int64_t quarter = 0; quarter < kWidth / 4; ++quarter) {
    vf x[4];
#pragma GCC unroll 4
    for (int64_t r = 0; r < 4; ++r) {
      const float* const at = from + r * from_row + 4 * quarter;
      const __m256 low =
          _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(at)), _mm_loadu_ps(at + 4 * from_row), 1);
#if defined(__AVX512F__)
      x[r] = _mm512_insertf32x4(_mm512_insertf32x4(_mm512_castps256_ps512(low), _mm_loadu_ps(at + 8 * from_row), 2),
                                _mm_loadu_ps(at + 12 * from_row), 3);
#else
      x[r] = low;
#endif
    }
#if defined(__AVX512F__)
    const __m512d a = (__m512d)_mm512_unpacklo_ps(x[0], x[1]), b = (__m512d)_mm512_unpackhi_ps(x[0], x[1]);
    const __m512d c = (__m512d)_mm512_unpacklo_ps(x[2], x[3]), d = (__m512d)_mm512_unpackhi_ps(x[2], x[3]);
    const vf y[4] = {(vf)_mm512_unpacklo_pd(a, c), (vf)_mm512_unpackhi_pd(a, c), (vf)_mm512_unpacklo_pd(b, d),
                     (vf)_mm512_unpackhi_pd(b, d)};
#else
    const __m256d a = (__m256d)_mm256_unpacklo_ps(x[0], x[1]), b = (__m256d)_mm256_unpackhi_ps(x[0], x[1]);
    const __m256d c = (__m256d)_mm256_unpacklo_ps(x[2], x[3]), d = (__m256d)_mm256_unpackhi_ps(x[2], x[3]);
    const vf y[4] = {(vf)_mm256_unpacklo_pd(a, c), (vf)_mm256_unpackhi_pd(a, c), (vf)_mm256_unpacklo_pd(b, d),
                     (vf)_mm256_unpackhi_pd(b, d)};
#endif
#pragma GCC unroll 4
    for (int64_t j = 0; j < 4; ++j) store(to + (4 * quarter + j) * to_row, y[j]);
  }
}
#endif

// to[j * to_row + i] = from[i * from_row + j]. The outer loop is over the rows with the larger stride, by tiles,
// because rows a power of two apart map to few cache sets. Tiles at an edge overlap their neighbours.
[[maybe_unused]] void transpose(const float* from, int64_t from_row, float* to, int64_t to_row, int64_t rows,
                                int64_t columns) {
  if (rows < 4 || columns < 4) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
    return;
  }
  const auto tiles = [&](int64_t side, auto tile) __attribute__((always_inline)) {
    const auto block = [&](int64_t i, int64_t j) __attribute__((always_inline)) {
      i = i > rows - side ? rows - side : i;
      j = j > columns - side ? columns - side : j;
      tile(from + i * from_row + j, from_row, to + j * to_row + i, to_row);
    };
    if (from_row > to_row)
      for (int64_t i = 0; i < rows; i += side)
        for (int64_t j = 0; j < columns; j += side) block(i, j);
    else
      for (int64_t j = 0; j < columns; j += side)
        for (int64_t i = 0; i < rows; i += side) block(i, j);
  };
#if defined(__AVX2__)
  if (rows >= kWidth && columns >= kWidth)
    return tiles(
        kWidth, [](auto... of) __attribute__((always_inline)) { transpose_whole(of...); });
#endif
  tiles(
      4, [](auto... of) __attribute__((always_inline)) { transpose_four(of...); });
}

// Transposes bytes, 16 by 16: each round interleaves the two halves of the rows.
[[maybe_unused]] void transpose(const uint8_t* from, int64_t from_row, uint8_t* to, int64_t to_row, int64_t rows,
                                int64_t columns) {
  for (int64_t i = 0; i < rows; i += 16)
    for (int64_t j = 0; j < columns; j += 16) {
      const int64_t own_rows = rows - i < 16 ? rows - i : 16, own_columns = columns - j < 16 ? columns - j : 16;
      __m128i x[16], y[16];
#pragma GCC unroll 16
      for (int64_t r = 0; r < 16; ++r) {
        const uint8_t* at = from + (i + r) * from_row + j;
        x[r] = _mm_setzero_si128();
        if (r < own_rows && own_columns == 16)
          x[r] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
        else if (r < own_rows)
          __builtin_memcpy(&x[r], at, static_cast<size_t>(own_columns));
      }
#pragma GCC unroll 4
      for (int round = 0; round < 4; ++round) {
#pragma GCC unroll 8
        for (int r = 0; r < 8; ++r)
          y[2 * r] = _mm_unpacklo_epi8(x[r], x[r + 8]), y[2 * r + 1] = _mm_unpackhi_epi8(x[r], x[r + 8]);
#pragma GCC unroll 16
        for (int r = 0; r < 16; ++r) x[r] = y[r];
      }
#pragma GCC unroll 16
      for (int64_t c = 0; c < 16; ++c) {
        if (c == own_columns) break;
        uint8_t* at = to + (j + c) * to_row + i;
        if (own_rows == 16)
          _mm_storeu_si128(reinterpret_cast<__m128i*>(at), x[c]);
        else
          __builtin_memcpy(at, &x[c], static_cast<size_t>(own_rows));
      }
    }
}

HM_INLINE void clear(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = 0;
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
