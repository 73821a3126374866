// Products with weights of 16-bit floats and stored types. A result is one inner product whose order of summation
// depends only on the depth: lane i accumulates the products of elements i, i + kWidth, ... in order, then the lanes
// are reduced. The bits therefore do not depend on the number of rows.
#pragma once

#include "../typed_weights.hpp"

#include "gemm.hpp"
#include "stored_types.hpp"

namespace harmonics::cpu::HM_ISA {

// typed_block and decode_row for types with blocks of 256.
void multiply_long_blocks(const TypedContext& c, const float* a, const char* w, float* y, int64_t m, int64_t n);
void decode_long_blocks(uint32_t dtype, const char* row, float* to, int64_t depth);

namespace {

// ---- few rows: the weight is converted in registers

// For so few rows of A memory limits the product, so that the weight is fetched into the L1 cache too.
constexpr int kRowsOfFetches = 2;
constexpr int64_t kNearBytes = 1024;

// Micro-kernel for kRows rows of A and kColumns rows of the weight.
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
      // Fetched into the L1 cache: what follows in these rows, and after their end in the next ones. Of several steps
      // in a line, the first fetches far ahead and the second near.
      constexpr bool kInLine = W::kStepBytes < 64 && 64 % W::kStepBytes == 0;
      const int64_t in_line = W::at(k) % 64, soon = W::at(k) + kNearBytes;
      [[maybe_unused]] const int64_t near = soon < row_bytes ? soon : soon + (kColumns - 1) * row_bytes;
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) {
        // Prefetches the rows that follow; a row is too short for the hardware prefetcher.
        for (int64_t at = 0; at < W::kStepBytes; at += 64) {
          if (!kInLine || in_line == 0) _mm_prefetch(w + (j + kColumns) * row_bytes + W::at(k) + at, _MM_HINT_T1);
          if constexpr (kRows <= kRowsOfFetches)
            if (!kInLine || in_line == W::kStepBytes) _mm_prefetch(w + j * row_bytes + near + at, _MM_HINT_T0);
        }
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

// As typed_products for one row of A, with one row of the weight after the other and memory fetched ahead in this
// order, which Zen 4 reads faster than several rows at once. Each result is a chain of additions with nothing to
// overlap: fast enough for memory, not for weights in the caches.
template <typename W>
HM_INLINE void four_in_order(const float* a, const char* w, int64_t row_bytes, float* c, int64_t depth) {
  constexpr int64_t kAhead = 8192;
  constexpr int kSteps = 64 / W::kStepBytes;  // of a cache line
  vf sum[4] = {};
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j, w += row_bytes) {
    int64_t k = 0;
    const auto step = [&]() __attribute__((always_inline)) {
      W::each(
          w, k, 0, [&](int, vf y) __attribute__((always_inline)) { sum[j] = fma(load(a + k), y, sum[j]); });
      k += W::kStep;
    };
    for (int64_t lines = depth / (kSteps * W::kStep); lines > 0; --lines) {
      _mm_prefetch(w + W::at(k) + kAhead, _MM_HINT_T1);
#pragma GCC unroll 4
      for (int i = 0; i < kSteps; ++i) step();
    }
    for (int64_t whole = (depth - k) / W::kStep; whole > 0; --whole) step();
    if (k < depth) sum[j] = fma(load_part(a + k, depth - k), W::part(w, k, depth - k), sum[j]);
  }
  _mm_storeu_ps(c, sums_of(sum[0], sum[1], sum[2], sum[3]));
}

// Rows of A per tile: their accumulators with three columns fit the registers. Rows of A are often a multiple of 4 KiB
// apart; more rows would evict the weight from their L1 set.
constexpr int kTileRows = kWidth < 16 ? 3 : 8;

template <typename W, int kRows>
void typed_rows(const TypedContext& c, const float* a, const char* w, float* y, int64_t n) {
  const Product& p = c.product;
  constexpr int kColumns = kRows <= 6 ? 4 : 3;
  int64_t j = 0;
  if constexpr (kRows == 1 && W::kStepBytes == 2 * kWidth)
    if (c.in_order)
      for (; j + 4 <= n; j += 4) four_in_order<W>(a, w + j * c.row_bytes, c.row_bytes, y + j, p.k);
  for (; j + kColumns <= n; j += kColumns)
    typed_products<W, kRows, kColumns>(a, p.k, w + j * c.row_bytes, c.row_bytes, y + j, p.n, p.k);
  for (; j < n; ++j)  // few columns do not justify code for every number of rows
    for (int r = 0; r < kRows; ++r)
      typed_products<W, 1, 1>(a + r * p.k, p.k, w + j * c.row_bytes, c.row_bytes, y + r * p.n + j, p.n, p.k);
}

// Multiplies m <= kRows rows.
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

// ---- sums of a block of rows and a panel of decoded rows

// Prefetches the rows of the weight that are decoded next, a few cache lines at a time during the products; the
// hardware prefetcher misses this pattern.
struct LinesAhead {
  const char* rows;
  int64_t count, row_bytes, bytes;
  int64_t row = 0, at = 0;
  HM_INLINE void fetch(int64_t lines) {
    for (; lines > 0 && row < count; --lines) {
      _mm_prefetch(rows + row * row_bytes + at, _MM_HINT_T1);
      if ((at += 64) >= bytes) at = 0, ++row;
    }
  }
};

// Multiplies kRows rows of A and kColumns decoded rows of the weight over `depth` elements. `state`: accumulators of
// the previous elements, not read if `first`. If `last`, the results are written to C instead. Prefetches `lines` lines
// meanwhile: more at once than a core has outstanding misses would hold up the products.
template <int kRows, int kColumns>
HM_INLINE void panel_tile(const float* a, int64_t a_row, const float* b, int64_t b_row, vf* state, float* c,
                          int64_t c_row, int64_t depth, bool first, bool last, LinesAhead& ahead, int64_t lines) {
  vf sum[kRows][kColumns];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) sum[i][j] = first ? vf{} : state[i * kTypedPanel + j];
  constexpr int64_t kPiece = 128;
  const int64_t lines_of_piece = (lines * kPiece + depth - 1) / depth;
  for (int64_t k = 0; k < depth; k += kPiece) {
    ahead.fetch(lines_of_piece);
    add_inner_products<kRows, kColumns>(a + k, a_row, b + k, b_row, depth - k < kPiece ? depth - k : kPiece, sum);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    if (!last) {
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) state[i * kTypedPanel + j] = sum[i][j];
    } else if constexpr (kColumns == 4) {
      _mm_storeu_ps(c + i * c_row, sums_of(sum[i][0], sum[i][1], sum[i][2], sum[i][3]));
    } else {
      c[i * c_row] = _mm_cvtss_f32(sums_of(sum[i][0], vf{}, vf{}, vf{}));
    }
  }
}

// A block of the depth of a panel: rows of A times decoded rows of the weight.
struct PanelPart {
  const float* a;
  int64_t a_row;
  const float* b;
  int64_t columns, depth;
  vf* state;  // [rows][kTypedPanel]
  float* c;
  int64_t c_row;
  bool first, last;  // block of the depth
};
constexpr int kPanelTileRows = kWidth < 16 ? 3 : 6;
constexpr int64_t kPanelStride = kTypedDepth + 16;  // not a multiple of a page, so that rows use different cache sets

template <int kRows = kPanelTileRows>
HM_INLINE void panel_rows(const PanelPart& p, int64_t i, int64_t rows, LinesAhead& ahead, int64_t lines) {
  if constexpr (kRows > 1)
    if (rows < kRows) return panel_rows<kRows - 1>(p, i, rows, ahead, lines);
  int64_t j = 0;
  const auto tile = [&]<int kColumns>() __attribute__((always_inline)) {
    panel_tile<kRows, kColumns>(p.a + i * p.a_row, p.a_row, p.b + j * kPanelStride, kPanelStride,
                                p.state + i * kTypedPanel + j, p.c + i * p.c_row + j, p.c_row, p.depth, p.first, p.last,
                                ahead, kColumns > 1 ? lines : 0);
  };
  for (; j + 4 <= p.columns; j += 4) tile.template operator()<4>();
  for (; j < p.columns; ++j) tile.template operator()<1>();
}

[[gnu::noinline]] void multiply_panel(const PanelPart& p, int64_t rows, LinesAhead ahead) {
  const int64_t groups = (rows + kPanelTileRows - 1) / kPanelTileRows, tiles = groups * (p.columns / 4),
                all = ahead.count * ((ahead.bytes + 63) / 64), lines = tiles > 0 ? (all + tiles - 1) / tiles : 0;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t i = rows * g / groups, end = rows * (g + 1) / groups;
    panel_rows(p, i, end - i, ahead, lines);
  }
}

// Computes a block of C: rows of A times `n` rows of the weight. Panels of decoded rows are on the stack, which stays
// in the thread's cache; a workspace per part would be written to memory.
template <typename W>
void by_panels(const TypedContext& c, const float* a, const char* w, float* y, int64_t m, int64_t n) {
  const Product& p = c.product;
  alignas(64) float panel[kTypedPanel * kPanelStride];
  alignas(64) vf state[kBlockRows * kTypedPanel];
  const auto part_bytes = [&](int64_t k) { return W::at(p.k - k < kTypedDepth ? p.k : k + kTypedDepth) - W::at(k); };
  for (int64_t block = 0; block < m; block += kBlockRows) {
    const int64_t rows = m - block < kBlockRows ? m - block : kBlockRows;
    for (int64_t j = 0; j < n; j += kTypedPanel) {
      const int64_t columns = n - j < kTypedPanel ? n - j : kTypedPanel;
      // After the last panel, those of the thread's next part follow in memory.
      const int64_t next = block + rows < m && j + columns == n ? 0 : kTypedPanel;
      for (int64_t k = 0; k < p.k; k += kTypedDepth) {
        const int64_t depth = p.k - k < kTypedDepth ? p.k - k : kTypedDepth;
        const char* const from = w + j * c.row_bytes + W::at(k);
        for (int64_t i = 0; i < columns; ++i) decode_row<W>(from + i * c.row_bytes, panel + i * kPanelStride, depth);
        const bool last = k + depth == p.k;
        const LinesAhead ahead = last ? LinesAhead{w + (j + columns) * c.row_bytes, next, c.row_bytes, part_bytes(0)}
                                      : LinesAhead{from + part_bytes(k), columns, c.row_bytes, part_bytes(k + depth)};
        multiply_panel({a + block * p.k + k, p.k, panel, columns, depth, state, y + block * p.n + j, p.n, k == 0, last},
                       rows, ahead);
      }
    }
  }
}

template <typename W>
void typed_block(const TypedContext& c, const float* a, const char* w, float* y, int64_t m, int64_t n) {
  if (m > kDirectRows) return by_panels<W>(c, a, w, y, m, n);
  const Product& p = c.product;
  const int64_t tiles = (m + kTileRows - 1) / kTileRows;
  constexpr int64_t kColumns = 24;  // a multiple of every tile width; these rows of the weight stay in cache
  for (int64_t j = 0; j < n; j += kColumns)
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t i = m * t / tiles, end = m * (t + 1) / tiles;
      typed_tile<W>(c, a + i * p.k, w + j * c.row_bytes, y + i * p.n + j, end - i, n - j < kColumns ? n - j : kColumns);
    }
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
