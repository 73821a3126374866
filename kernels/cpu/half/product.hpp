// The product of packed operands with vectors of 32 fp16 numbers, for native and emulated Lanes. Private to the
// including translation unit.
#pragma once

#include "../half_product.hpp"

namespace harmonics::cpu::half {
namespace {

// Numbers of a strip, after its exponents.
[[gnu::always_inline]] static inline const uint32_t* pairs_of(const uint32_t* strip) {
  return strip + kHalfExponentsOfA;
}
[[gnu::always_inline]] static inline const uint16_t* halves_of(const uint32_t* strip) {
  return reinterpret_cast<const uint16_t*>(strip + kHalfExponentsOfB);
}
[[gnu::always_inline]] static inline const float* exponents_of(const uint32_t* strip) {
  return reinterpret_cast<const float*>(strip);
}

// totals[kUsed][kHalfColumns] = A B over `depth`, chunk by chunk, for the first kVectors * 32 columns.
template <typename Lanes, int kUsed, int kVectors>
void sum_chunks(const uint32_t* a, const uint16_t* b, int64_t depth, float* totals) {
  typename Lanes::Kept kept[kUsed * kVectors];
  for (int i = 0; i < kUsed; ++i) __builtin_memset(totals + i * kHalfColumns, 0, kVectors * 32 * sizeof(float));
  for (int64_t first = 0; first < depth; first += kChunk) {
    const int64_t end = first + kChunk < depth ? first + kChunk : depth;
    typename Lanes::Halves sum[kUsed][kVectors];
#pragma GCC unroll 12
    for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[i][v] = Lanes::zero();
    for (int64_t k = first; k < end; ++k) {
      typename Lanes::Halves y[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) y[v] = Lanes::load(b + k * kHalfColumns + 32 * v);
#pragma GCC unroll 12
      for (int i = 0; i < kUsed; ++i) {
        const auto x = Lanes::pair(a + k * kHalfRows + i);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sum[i][v] = Lanes::fma(x, y[v], sum[i][v]);
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) Lanes::keep(kept[i * kVectors + v], sum[i][v]);
    Lanes::settle();
#pragma GCC unroll 12
    for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) Lanes::add_to(totals + i * kHalfColumns + 32 * v, kept[i * kVectors + v]);
  }
}
using SumChunks = void (*)(const uint32_t*, const uint16_t*, int64_t, float*);
template <typename L, int kVectors>
constexpr SumChunks kSumChunks[] = {
    sum_chunks<L, 1, kVectors>, sum_chunks<L, 2, kVectors>,  sum_chunks<L, 3, kVectors>,  sum_chunks<L, 4, kVectors>,
    sum_chunks<L, 5, kVectors>, sum_chunks<L, 6, kVectors>,  sum_chunks<L, 7, kVectors>,  sum_chunks<L, 8, kVectors>,
    sum_chunks<L, 9, kVectors>, sum_chunks<L, 10, kVectors>, sum_chunks<L, 11, kVectors>, sum_chunks<L, 12, kVectors>};

// A strip of B stays in the L1 cache while those of A pass.
template <typename Lanes>
void multiply(const HalfBlock& x) {
  alignas(64) float totals[kHalfRows * kHalfColumns];
  const uint32_t* b = x.b;
  for (int64_t j = 0; j < x.columns; j += kHalfColumns, b += kHalfStripOfB) {
    const int64_t columns = x.columns - j < kHalfColumns ? x.columns - j : kHalfColumns;
    const uint32_t* a = x.a;
    for (int64_t i = 0; i < x.rows; i += kHalfRows, a += kHalfStripOfA) {
      const int64_t rows = x.rows - i < kHalfRows ? x.rows - i : kHalfRows;
      const SumChunks* const sums = columns > kHalfColumns / 2 ? kSumChunks<Lanes, 2> : kSumChunks<Lanes, 1>;
      sums[rows - 1](pairs_of(a), halves_of(b), x.depth, totals);
      for (int64_t r = 0; r < rows; ++r)
        Lanes::give_back(totals + r * kHalfColumns, exponents_of(a)[r], exponents_of(b), columns,
                         x.c + (i + r) * x.c_row + j, x.add);
    }
  }
}

}  // namespace
}  // namespace harmonics::cpu::half
