// The product with vectors of 32 fp16 numbers, for native and emulated Lanes. Private to the including translation
// unit.
#pragma once

#include "../half_product.hpp"

namespace harmonics::cpu::half {
namespace {

// Returns the exponent of the power of two that scales a magnitude into [16, 32).
int32_t exponent_below_32(float largest) {
  uint32_t bits;
  __builtin_memcpy(&bits, &largest, sizeof bits);
  const auto exponent = static_cast<int32_t>(bits >> 23) - 127;
  return largest == 0 ? 0 : exponent < -122 ? 126 : 4 - exponent;
}

float power_of_two(int32_t exponent) {
  const uint32_t bits = static_cast<uint32_t>(exponent + 127) << 23;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

// Ignores NaN, which must not affect the scale and propagates to the result anyway.
float larger(float a, float b) { return b > a ? b : a; }

// Packs column panels of B, kHalfColumns wide.
template <typename Lanes>
void pack_b(const Product& p, const float* b, int64_t depth, int64_t columns, HalfWorkspace& w) {
  for (int64_t j = 0; j < columns; j += kHalfColumns) {
    const int64_t used = columns - j < kHalfColumns ? columns - j : kHalfColumns;
    float largest[kHalfColumns] = {}, scale[kHalfColumns];
    for (int64_t k = 0; k < depth; ++k) {
      float* row = w.column + k * kHalfColumns;
      const float* from = b + k * p.b_row + j * p.b_column;
      if (p.b_column == 1)
        for (int64_t c = 0; c < used; ++c) row[c] = from[c];
      else
        for (int64_t c = 0; c < used; ++c) row[c] = from[c * p.b_column];
      for (int64_t c = used; c < kHalfColumns; ++c) row[c] = 0;
      for (int64_t c = 0; c < kHalfColumns; ++c) largest[c] = larger(largest[c], __builtin_fabsf(row[c]));
    }
    for (int64_t c = 0; c < kHalfColumns; ++c) {
      w.b_exponents[j + c] = exponent_below_32(largest[c]);
      scale[c] = power_of_two(w.b_exponents[j + c]);
    }
    uint16_t* to = w.b + j * depth;
    for (int64_t k = 0; k < depth; ++k, to += kHalfColumns) {
      const float* row = w.column + k * kHalfColumns;
      for (int64_t c = 0; c < kHalfColumns; ++c) to[c] = Lanes::round(row[c] * scale[c]);
    }
  }
}

// Packs row panels of A, kHalfRows high.
template <typename Lanes>
void pack_a(const Product& p, const float* a, int64_t rows, int64_t depth, HalfWorkspace& w) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = a + i * p.a_row;
    float largest = 0;
    for (int64_t k = 0; k < depth; ++k) largest = larger(largest, __builtin_fabsf(from[k * p.a_column]));
    w.a_exponents[i] = exponent_below_32(largest);
    const float scale = power_of_two(w.a_exponents[i]);
    uint32_t* to = w.a + i / kHalfRows * kHalfRows * depth + i % kHalfRows;
    for (int64_t k = 0; k < depth; ++k) to[k * kHalfRows] = 0x10001u * Lanes::round(from[k * p.a_column] * scale);
  }
}

// totals[kUsed][kHalfColumns] += A B over `depth`, chunk by chunk.
template <typename Lanes, int kUsed>
void sum_chunks(const uint32_t* a, const uint16_t* b, int64_t depth, float* totals) {
  for (int64_t first = 0; first < depth; first += kChunk) {
    const int64_t end = first + kChunk < depth ? first + kChunk : depth;
    typename Lanes::Halves sum[kUsed][2];
#pragma GCC unroll 12
    for (int i = 0; i < kUsed; ++i) sum[i][0] = sum[i][1] = Lanes::zero();
    for (int64_t k = first; k < end; ++k) {
      const auto left = Lanes::load(b + k * kHalfColumns), right = Lanes::load(b + k * kHalfColumns + 32);
#pragma GCC unroll 12
      for (int i = 0; i < kUsed; ++i) {
        const auto x = Lanes::pair(a + k * kHalfRows + i);
        sum[i][0] = Lanes::fma(x, left, sum[i][0]);
        sum[i][1] = Lanes::fma(x, right, sum[i][1]);
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < kUsed; ++i) {
      Lanes::add_to(totals + i * kHalfColumns, sum[i][0]);
      Lanes::add_to(totals + i * kHalfColumns + 32, sum[i][1]);
    }
  }
}
using SumChunks = void (*)(const uint32_t*, const uint16_t*, int64_t, float*);
template <typename L>
constexpr SumChunks kSumChunks[] = {sum_chunks<L, 1>, sum_chunks<L, 2>,  sum_chunks<L, 3>,  sum_chunks<L, 4>,
                                    sum_chunks<L, 5>, sum_chunks<L, 6>,  sum_chunks<L, 7>,  sum_chunks<L, 8>,
                                    sum_chunks<L, 9>, sum_chunks<L, 10>, sum_chunks<L, 11>, sum_chunks<L, 12>};

// Undoes the scaling by two factors, neither of which leaves the range of fp32 unless the result does.
void give_back(const float* totals, const int32_t* a_exponents, const int32_t* b_exponents, int64_t rows,
               int64_t columns, float* c, int64_t c_row, bool add) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const int32_t exponent = -(a_exponents[i] + b_exponents[j]), half = exponent / 2;
      const float value = totals[i * kHalfColumns + j] * power_of_two(half) * power_of_two(exponent - half);
      c[i * c_row + j] = add ? c[i * c_row + j] + value : value;
    }
}

template <typename Lanes>
void multiply(const Product& p, const float* a, const float* b, float* c, int64_t i0, int64_t i1, int64_t j0,
              int64_t j1, HalfWorkspace& w) {
  const auto at_most = [](int64_t n, int64_t most) { return n < most ? n : most; };
  for (int64_t j = j0; j < j1; j += kHalfBlockColumns) {
    const int64_t columns = at_most(j1 - j, kHalfBlockColumns);
    for (int64_t k = 0; k < p.k; k += kHalfDepth) {
      const int64_t depth = at_most(p.k - k, kHalfDepth);
      pack_b<Lanes>(p, b + k * p.b_row + j * p.b_column, depth, columns, w);
      for (int64_t i = i0; i < i1; i += kHalfBlockRows) {
        const int64_t rows = at_most(i1 - i, kHalfBlockRows);
        pack_a<Lanes>(p, a + i * p.a_row + k * p.a_column, rows, depth, w);
        for (int64_t jj = 0; jj < columns; jj += kHalfColumns)
          for (int64_t ii = 0; ii < rows; ii += kHalfRows) {
            const int64_t used = at_most(rows - ii, kHalfRows);
            __builtin_memset(w.totals, 0, sizeof w.totals);
            kSumChunks<Lanes>[used - 1](w.a + ii * depth, w.b + jj * depth, depth, w.totals);
            give_back(w.totals, w.a_exponents + ii, w.b_exponents + jj, used, at_most(columns - jj, kHalfColumns),
                      c + (i + ii) * p.n + j + jj, p.n, p.accumulate || k > 0);
          }
      }
    }
  }
}

}  // namespace
}  // namespace harmonics::cpu::half
