// Computes blocks of C by register blocks (squares) of up to 2 x 2 tiles, for every Core. Private to the including
// translation unit.
#pragma once

#include <cstddef>

#include "../rounded_ahead.hpp"
#include "layout.hpp"

namespace harmonics::cpu::bf16 {
namespace {

constexpr int64_t kSide = 2 * kStrip;  // side of a square

// Operands and result of a square.
struct Square {
  const uint16_t *a, *b;
  int64_t a_strip, b_strip, tiles;
  float* c;
  int64_t c_row;
  bool add;
  const float* next;  // C of the square after it
  Ahead* ahead;
};

template <typename Core>
void multiply_square(const Square& s, int64_t rows, int64_t columns) {
  if (rows > 1)
    columns > 1 ? Core::template run<2, 2>(s) : Core::template run<2, 1>(s);
  else
    columns > 1 ? Core::template run<1, 2>(s) : Core::template run<1, 1>(s);
}

// Computes incomplete tiles of C in a temporary square.
template <typename Core>
void multiply_edge(Square s, int64_t rows, int64_t columns) {
  alignas(64) float sums[kSide * kSide];
  float* const c = s.c;
  const int64_t bytes = columns * static_cast<int64_t>(sizeof(float));
  if (s.add)
    for (int64_t i = 0; i < rows; ++i) __builtin_memcpy(sums + i * kSide, c + i * s.c_row, static_cast<size_t>(bytes));
  const int64_t c_row = s.c_row;
  s.c = sums, s.c_row = kSide;
  multiply_square<Core>(s, strips_of(rows), strips_of(columns));
  for (int64_t i = 0; i < rows; ++i) __builtin_memcpy(c + i * c_row, sums + i * kSide, static_cast<size_t>(bytes));
}

// The shorter side is the outer loop, so that its strips stay in the L1 cache.
template <typename Core>
void multiply_block(const RoundedBlock& x) {
  [[maybe_unused]] const typename Core::Scope scope;
  const bool by_columns = x.columns <= x.rows;
  const int64_t slow = by_columns ? x.columns : x.rows, fast = by_columns ? x.rows : x.columns;
  const auto *const a = reinterpret_cast<const uint16_t*>(x.a), *const b = reinterpret_cast<const uint16_t*>(x.b);
  const int64_t a_strip = 2 * x.a_strip, b_strip = 2 * x.b_strip, tiles = depth_tiles(x.depth);
  Ahead ahead(x, strips_of(x.rows) * strips_of(x.columns) * tiles);
  for (int64_t s = 0; s < slow; s += kSide)
    for (int64_t f = 0; f < fast; f += kSide) {
      const int64_t i = by_columns ? f : s, j = by_columns ? s : f;
      const int64_t rows = x.rows - i < kSide ? x.rows - i : kSide,
                    columns = x.columns - j < kSide ? x.columns - j : kSide;
      float* const c = x.c + i * x.c_row + j;
      const Square square{a + i / kStrip * a_strip,
                          b + j / kStrip * b_strip,
                          a_strip,
                          b_strip,
                          tiles,
                          c,
                          x.c_row,
                          x.add,
                          by_columns ? c + kSide * x.c_row : c + kSide,
                          &ahead};
      if (rows % kStrip == 0 && columns % kStrip == 0)
        multiply_square<Core>(square, rows / kStrip, columns / kStrip);
      else
        multiply_edge<Core>(square, rows, columns);
    }
}

}  // namespace
}  // namespace harmonics::cpu::bf16
