// Small transpositions in registers.
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

// to[j * to_row + i] = from[i * from_row + j]. Goes along the rows that lie further apart, four at a time: those of one power
// of two meet in few places of the cache. What is left over at an edge is done with its neighbours once more.
[[maybe_unused]] void transpose(const float* from, int64_t from_row, float* to, int64_t to_row, int64_t rows,
                                int64_t columns) {
  if (rows < 4 || columns < 4) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
    return;
  }
  const auto block = [&](int64_t i, int64_t j) __attribute__((always_inline)) {
    i = i > rows - 4 ? rows - 4 : i;
    j = j > columns - 4 ? columns - 4 : j;
    transpose_four(from + i * from_row + j, from_row, to + j * to_row + i, to_row);
  };
  if (from_row > to_row)
    for (int64_t i = 0; i < rows; i += 4)
      for (int64_t j = 0; j < columns; j += 4) block(i, j);
  else
    for (int64_t j = 0; j < columns; j += 4)
      for (int64_t i = 0; i < rows; i += 4) block(i, j);
}

HM_INLINE void clear(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = 0;
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
