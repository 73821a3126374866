// Products with weights of 16-bit floats and stored types. Every result is the sum of one inner product in the order
// that the depth alone determines, so it does not depend on how many rows are multiplied together: lane i of a vector
// adds the products of elements i, i + kWidth, ... in turn, then the lanes are added.
#pragma once

#include "../typed_weights.hpp"

#include "gemm.hpp"
#include "stored_types.hpp"

namespace harmonics::cpu::HM_ISA {

// For types with blocks of 256: as typed_block and decode_row.
void multiply_long_blocks(const TypedContext& c, const float* a, const char* w, float* y, int64_t m, int64_t n,
                          float* panel);
void decode_long_blocks(uint32_t dtype, const char* row, float* to, int64_t depth);

namespace {

// ---- few rows: weights are converted in registers

// kRows rows of A times kColumns rows of the weight.
template <typename W, int kRows, int kColumns>
HM_INLINE void typed_products(const float* a, int64_t a_row, const char* w, int64_t row_bytes, float* c, int64_t c_row,
                              int64_t depth) {
  vf sum[kRows][kColumns] = {};
  alignas(64) float scales[kColumns][kGroup];
  const int64_t whole = depth / W::kStep * W::kStep;
  int64_t k = 0;
  while (k < whole) {
    const int64_t group = W::kScales && whole - k > kGroup * W::kStep ? k + kGroup * W::kStep : whole;
    if constexpr (W::kScales)
      for (int j = 0; j < kColumns; ++j) W::scales(w + j * row_bytes, k, (group - k) / W::kStep, scales[j]);
    for (int64_t i = 0; k < group; k += W::kStep, ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) {
        // the rows after these: a row is too short for the processor to notice its stream in time
        for (int64_t at = 0; at < W::kStepBytes; at += 64)
          _mm_prefetch(w + (j + kColumns) * row_bytes + W::at(k) + at, kRows > 2 ? _MM_HINT_T1 : _MM_HINT_T0);
        W::each(
            w + j * row_bytes, k, W::kScales ? scales[j][i] : 0, [&](int v, vf y) __attribute__((always_inline)) {
#pragma GCC unroll 8
              for (int r = 0; r < kRows; ++r) sum[r][j] = fma(load(a + r * a_row + k + v * kWidth), y, sum[r][j]);
            });
      }
    }
  }
  if (k < depth) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      const vf y = W::part(w + j * row_bytes, k, depth - k);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sum[i][j] = fma(load_part(a + i * a_row + k, depth - k), y, sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    float* to = c + i * c_row;
    if constexpr (kColumns % 4 == 0) {
#pragma GCC unroll 2
      for (int j = 0; j < kColumns; j += 4)
        _mm_storeu_ps(to + j, sums_of(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]));
    } else {
      static_assert(kColumns < 4);
      const __m128 sums = sums_of(sum[i][0], kColumns > 1 ? sum[i][kColumns > 1] : vf{},
                                  kColumns > 2 ? sum[i][kColumns - 1] : vf{}, vf{});
      for (int j = 0; j < kColumns; ++j) to[j] = sums[j];
    }
  }
}

// As many rows of A as leave registers for their sums with three columns. More rows of A, a multiple of 4 KiB apart as
// they often are, would also leave no room in a first-level cache for the weight.
constexpr int kTileRows = kWidth < 16 ? 3 : 8;

template <typename W, int kRows>
void typed_rows(const TypedContext& c, const float* a, const char* w, float* y, int64_t n) {
  const Product& p = c.product;
  constexpr int kColumns = kRows == 1 ? 8 : kRows <= 6 ? 4 : 3;
  int64_t j = 0;
  for (; j + kColumns <= n; j += kColumns)
    typed_products<W, kRows, kColumns>(a, p.k, w + j * c.row_bytes, c.row_bytes, y + j, p.n, p.k);
  for (; j < n; ++j)  // few: not worth code for every number of rows
    for (int r = 0; r < kRows; ++r)
      typed_products<W, 1, 1>(a + r * p.k, p.k, w + j * c.row_bytes, c.row_bytes, y + r * p.n + j, p.n, p.k);
}

// m rows, from kRows down.
template <typename W, int kRows = kTileRows>
void typed_tile(const TypedContext& c, const float* a, const char* w, float* y, int64_t m, int64_t n) {
  if (m == kRows) return typed_rows<W, kRows>(c, a, w, y, n);
  if constexpr (kRows > 1) typed_tile<W, kRows - 1>(c, a, w, y, m, n);
}

// ---- more rows: rows of the weight are decoded once for a block of rows of A

template <typename W>
void decode_row(const char* row, float* to, int64_t depth) {
  alignas(64) float scales[kGroup];
  int64_t k = 0;
  for (int64_t i = 0; k + W::kStep <= depth; k += W::kStep, ++i) {
    if (W::kScales && i % kGroup == 0) {
      const int64_t blocks = (depth - k) / W::kStep;
      W::scales(row, k, blocks < kGroup ? blocks : kGroup, scales);
    }
    W::each(
        row, k, W::kScales ? scales[i % kGroup] : 0, [&](int v, vf y) __attribute__((always_inline)) {
          store(to + k + v * kWidth, y);
        });
  }
  if (k < depth) store_part(to + k, W::part(row, k, depth - k), depth - k);
}

// A block of C: rows of A times `n` rows of the weight. `panel`: room for c.panel decoded rows.
template <typename W>
void by_panels(const TypedContext& c, const float* a, const char* w, float* y, int64_t m, int64_t n, float* panel) {
  const Product& p = c.product;
  constexpr int64_t kRows = kWidth < 16 ? 3 : 6;
  for (int64_t block = 0; block < m; block += kBlockRows) {
    const int64_t end = m - block < kBlockRows ? m : block + kBlockRows;
    for (int64_t j = 0; j < n; j += c.panel) {
      const int64_t columns = n - j < c.panel ? n - j : c.panel;
      for (int64_t i = 0; i < columns; ++i) decode_row<W>(w + (j + i) * c.row_bytes, panel + i * p.k, p.k);
      int64_t i = block;
      for (; i + kRows <= end; i += kRows)
        inner_rows<kRows, 4>(a + i * p.k, p.k, panel, p.k, y + i * p.n + j, p.n, columns, p.k, false);
      if (i < end) gemm_inner(end - i, columns, p.k, a + i * p.k, p.k, panel, p.k, y + i * p.n + j, p.n, false);
    }
  }
}

template <typename W>
void typed_block(const TypedContext& c, const float* a, const char* w, float* y, int64_t m, int64_t n, float* panel) {
  if (m > kDirectRows) return by_panels<W>(c, a, w, y, m, n, panel);
  const Product& p = c.product;
  const int64_t tiles = (m + kTileRows - 1) / kTileRows;
  constexpr int64_t kColumns = 24;  // whole tiles of any width; their rows of the weight stay in cache
  for (int64_t j = 0; j < n; j += kColumns)
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t i = m * t / tiles, end = m * (t + 1) / tiles;
      typed_tile<W>(c, a + i * p.k, w + j * c.row_bytes, y + i * p.n + j, end - i, n - j < kColumns ? n - j : kColumns);
    }
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
