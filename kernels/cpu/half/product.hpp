// The product of packed operands with vectors of 32 fp16 numbers, for native and emulated Lanes. Private to the
// including translation unit.
#pragma once

#include "../rounded_ahead.hpp"
#include "layout.hpp"

namespace harmonics::cpu::half {
namespace {

// C = A B, or C += A B, of a strip of A and one of B: the first kVectors * 32 columns. Sums of chunks are added to
// those before them; the totals are given back with the scales undone.
template <typename Lanes, int kUsed, int kVectors, bool kByRows>
void multiply_strips(const uint32_t* a, const uint32_t* b, int64_t rows, int64_t columns, int64_t depth, float* c,
                     int64_t c_row, bool add, Ahead& ahead) {
  constexpr int64_t kRow = kByRows ? kHalfRowStride : 1, kTerm = kByRows ? 1 : kHalfTermStride;
  typename Lanes::Kept totals[kUsed * kVectors];
  const uint32_t* const pairs = a + kHalfExponentsOfA;
  const auto* const halves = reinterpret_cast<const uint16_t*>(b + kHalfExponentsOfB);
  for (int64_t first = 0; first < depth; first += kChunk) {
    const int64_t end = first + kChunk < depth ? first + kChunk : depth;
    ahead.fetch_share();
    typename Lanes::Halves sum[kUsed][kVectors];
#pragma GCC unroll 12
    for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[i][v] = Lanes::zero();
    for (int64_t k = first; k < end; ++k) {
      typename Lanes::Halves y[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) y[v] = Lanes::load(halves + k * kHalfColumns + 32 * v);
#pragma GCC unroll 12
      for (int i = 0; i < kUsed; ++i) {
        const auto x = Lanes::pair(pairs + k * kTerm + i * kRow);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sum[i][v] = Lanes::fma(x, y[v], sum[i][v]);
      }
    }
    if (first > 0) {
#pragma GCC unroll 12
      for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sum[i][v] = Lanes::plus(totals[i * kVectors + v], sum[i][v]);
    }
#pragma GCC unroll 12
    for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) Lanes::keep(totals[i * kVectors + v], sum[i][v]);
  }
  Lanes::settle();
  const auto *a_exponents = reinterpret_cast<const float*>(a), *b_exponents = reinterpret_cast<const float*>(b);
  for (int64_t i = 0; i < rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      Lanes::give_back(totals[i * kVectors + v], a_exponents[i], b_exponents + 32 * v, columns - 32 * v,
                       c + i * c_row + 32 * v, add);
}
using MultiplyStrips = void (*)(const uint32_t*, const uint32_t*, int64_t, int64_t, int64_t, float*, int64_t, bool,
                                Ahead&);
// By the number of rows, in fours.
template <typename L, int kVectors, bool kByRows>
constexpr MultiplyStrips kMultiplyStrips[] = {multiply_strips<L, 4, kVectors, kByRows>,
                                              multiply_strips<L, 8, kVectors, kByRows>,
                                              multiply_strips<L, 12, kVectors, kByRows>};

// A strip of B stays in the L1 cache while those of A pass.
template <typename Lanes, bool kByRows>
void multiply_block(const RoundedBlock& x) {
  const int64_t strips = (x.rows + kHalfRows - 1) / kHalfRows * ((x.columns + kHalfColumns - 1) / kHalfColumns);
  Ahead ahead(x, strips * ((x.depth + kChunk - 1) / kChunk));
  const uint32_t* b = x.b;
  for (int64_t j = 0; j < x.columns; j += kHalfColumns, b += kHalfStripOfB) {
    const int64_t columns = x.columns - j < kHalfColumns ? x.columns - j : kHalfColumns;
    const MultiplyStrips* const by_fours =
        columns > kHalfColumns / 2 ? kMultiplyStrips<Lanes, 2, kByRows> : kMultiplyStrips<Lanes, 1, kByRows>;
    const uint32_t* a = x.a;
    for (int64_t i = 0; i < x.rows; i += kHalfRows, a += kHalfStripOfA) {
      const int64_t rows = x.rows - i < kHalfRows ? x.rows - i : kHalfRows;
      float* const c = x.c + i * x.c_row + j;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t line = 0; line < columns; line += 16) __builtin_prefetch(c + r * x.c_row + line, 1);
      by_fours[(rows - 1) / 4](a, b, rows, columns, x.depth, c, x.c_row, x.add, ahead);
    }
  }
}

template <typename Lanes>
void multiply(const RoundedBlock& x) {
  x.by_rows ? multiply_block<Lanes, true>(x) : multiply_block<Lanes, false>(x);
}

}  // namespace
}  // namespace harmonics::cpu::half
