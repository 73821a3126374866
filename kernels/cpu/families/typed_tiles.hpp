// Products of some rows with weights of 16-bit floats. Each tile of rows converts the weight in registers, so that no
// decoded copy passes through the caches. Sums have the order of typed_products.hpp.
#pragma once

#include "typed_products.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Columns whose weights stay in the second-level cache while all tiles of rows read them.
constexpr int64_t kTiledColumns = 24;

struct RowTiles {
  int64_t rows, steps;  // steps: vectors of a row, the last one padded with zeros
  explicit RowTiles(const Product& p) : rows(p.m), steps((p.k + kWidth - 1) / kWidth) {}
  int64_t count() const { return (rows + kTileRows - 1) / kTileRows; }
  int64_t begin(int64_t t) const { return rows * t / count(); }
};

// Copies vectors of x so that the rows of a tile lie together. Rows of x are often a multiple of 4 KiB apart, where
// they would evict each other from their L1 set.
void copy_to_tiles(const Product& p, const float* x, float* to, Range steps) {
  const RowTiles tiles(p);
  for (int64_t t = 0; t < tiles.count(); ++t) {
    const int64_t first = tiles.begin(t), rows = tiles.begin(t + 1) - first;
    float* const tile = to + first * tiles.steps * kWidth;
    for (int64_t s = steps.begin; s < steps.end; ++s)
      for (int64_t r = 0; r < rows; ++r)
        store(tile + (s * rows + r) * kWidth, load_some(x + (first + r) * p.k + s * kWidth, lanes_at(s * kWidth, p.k)));
  }
}

// A block of the depth, from element k of the rows of the weight on.
struct TiledPart {
  const float* a;  // of the tile, at element k
  const char* w;
  int64_t row_bytes, k, depth;
  vf* state;  // [rows][kTiledColumns]
  float* c;
  int64_t c_row;
  bool first, last;  // block of the depth
};

template <typename W, int kRows, int kColumns>
HM_INLINE void tiled_products(const TiledPart& p, int64_t j, LinesAhead& ahead, int64_t lines) {
  static_assert(kColumns <= 3 && W::kStep == kWidth && !W::kScales);
  const char* const w = p.w + j * p.row_bytes;
  vf* const state = p.state + j;
  vf sum[kRows][kColumns];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kColumns; ++v) sum[i][v] = p.first ? vf{} : state[i * kTiledColumns + v];
  const auto add = [&](const float* a, const vf(&y)[kColumns]) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const vf x = load(a + i * kWidth);
#pragma GCC unroll 4
      for (int v = 0; v < kColumns; ++v) sum[i][v] = fma(x, y[v], sum[i][v]);
    }
  };
  constexpr int64_t kPiece = 128;
  const int64_t lines_of_piece = (lines * kPiece + p.depth - 1) / p.depth, whole = p.depth / kWidth * kWidth;
  for (int64_t piece = 0; piece < whole; piece += kPiece) {
    ahead.fetch(lines_of_piece);
    const int64_t end = whole - piece < kPiece ? whole : piece + kPiece;
    for (int64_t k = piece; k < end; k += kWidth) {
      vf y[kColumns];
#pragma GCC unroll 4
      for (int v = 0; v < kColumns; ++v)
        W::each(
            w + v * p.row_bytes, p.k + k, 0, [&](int, vf numbers) __attribute__((always_inline)) { y[v] = numbers; });
      add(p.a + k * kRows, y);
    }
  }
  if (whole < p.depth) {
    vf y[kColumns];
#pragma GCC unroll 4
    for (int v = 0; v < kColumns; ++v) y[v] = W::part(w + v * p.row_bytes, p.k + whole, p.depth - whole);
    add(p.a + whole * kRows, y);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    if (p.last) {
      const __m128 sums = sums_of(sum[i][0], kColumns > 1 ? sum[i][kColumns > 1] : vf{},
                                  kColumns > 2 ? sum[i][kColumns - 1] : vf{}, vf{});
      float* const to = p.c + i * p.c_row + j;
      for (int v = 0; v < kColumns; ++v) to[v] = sums[v];
    } else {
#pragma GCC unroll 4
      for (int v = 0; v < kColumns; ++v) state[i * kTiledColumns + v] = sum[i][v];
    }
  }
}

template <typename W, int kRows>
[[gnu::noinline]] void tile_of_rows(const TiledPart& p, int64_t columns, LinesAhead& ahead, int64_t lines) {
  int64_t j = 0;
  for (; j + 3 <= columns; j += 3) tiled_products<W, kRows, 3>(p, j, ahead, lines);
  if (columns - j == 2) tiled_products<W, kRows, 2>(p, j, ahead, 0);
  if (columns - j == 1) tiled_products<W, kRows, 1>(p, j, ahead, 0);
}

template <typename W, int kRows = kTileRows>
HM_INLINE void tile_of(int64_t rows, const TiledPart& p, int64_t columns, LinesAhead& ahead, int64_t lines) {
  if (rows == kRows) return tile_of_rows<W, kRows>(p, columns, ahead, lines);
  if constexpr (kRows > kTileRows / 2) tile_of<W, kRows - 1>(rows, p, columns, ahead, lines);
}

// Computes `n` columns of C for all rows of A; `a` is their copy by copy_to_tiles().
template <typename W>
void by_tiles(const TypedContext& c, const float* a, const char* w, float* y, int64_t n) {
  const Product& p = c.product;
  const RowTiles tiles(p);
  alignas(64) vf state[kMostTiledRows * kTiledColumns];
  const auto part_bytes = [&](int64_t k) { return W::at(p.k - k < kTypedDepth ? p.k : k + kTypedDepth) - W::at(k); };
  for (int64_t j = 0; j < n; j += kTiledColumns) {
    const int64_t columns = n - j < kTiledColumns ? n - j : kTiledColumns;
    for (int64_t k = 0; k < p.k; k += kTypedDepth) {
      const int64_t depth = p.k - k < kTypedDepth ? p.k - k : kTypedDepth;
      const bool last = k + depth == p.k;
      const char* const from = w + j * c.row_bytes;
      // After the last columns, those of the thread's next part follow in memory.
      LinesAhead ahead = last ? LinesAhead{from + columns * c.row_bytes, kTiledColumns, c.row_bytes, part_bytes(0)}
                              : LinesAhead{from + W::at(k + depth), columns, c.row_bytes, part_bytes(k + depth)};
      const int64_t calls = tiles.count() * (columns / 3), all = ahead.count * ((ahead.bytes + 63) / 64),
                    lines = calls > 0 ? (all + calls - 1) / calls : 0;
      for (int64_t t = 0; t < tiles.count(); ++t) {
        const int64_t first = tiles.begin(t), rows = tiles.begin(t + 1) - first;
        const TiledPart part{a + first * tiles.steps * kWidth + k * rows,
                             from,
                             c.row_bytes,
                             k,
                             depth,
                             state + first * kTiledColumns,
                             y + first * p.n + j,
                             p.n,
                             k == 0,
                             last};
        tile_of<W>(rows, part, columns, ahead, lines);
      }
    }
  }
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
