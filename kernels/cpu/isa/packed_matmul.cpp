// Large products with packed panels, for any strides of the operands. A row-major A is read in place.
#include "../elementwise.hpp"
#include "column_sums.hpp"
#include "kernels.hpp"
#include "packed.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Packs one part's share of both operands. Shares match the slices of the next phase, so a thread often reads what it
// packed.
void pack_shared(const PackedContext& c, void* const* buffers, uint32_t part) {
  const Product& p = c.product;
  float* workspace = static_cast<float*>(buffers[p.c + 1]);
  if (c.packs_a) {
    const Range panels = share((p.m + kRows - 1) / kRows, c.pack_parts, part);
    const float* a = static_cast<const float*>(buffers[p.a]);
    // Reads few pages of A at a time.
    constexpr int64_t kBlock = 64;
    for (int64_t k = 0; k < p.k; k += kBlock)
      for (int64_t i = panels.begin * kRows; i < panels.end * kRows && i < p.m; i += kRows)
        pack_rows(a + i * p.a_row + k * p.a_column, p.a_column, p.m - i < kRows ? p.m - i : kRows,
                  p.k - k < kBlock ? p.k - k : kBlock, workspace + i * p.k + k * kRows);
  }
  if (!c.shares_b || c.keeps_b) return;
  const Range panels = share((p.n + kColumns - 1) / kColumns, c.pack_parts, part);
  const int64_t j = panels.begin * kColumns, end = panels.end * kColumns < p.n ? panels.end * kColumns : p.n;
  if (j < end)
    pack_b(p, static_cast<const float*>(buffers[p.b]) + j * p.b_column, end - j, p.k, workspace + c.a_floats + j * p.k,
           p.k * kColumns);
}

// Prefetches a tile's share of the next panel of B, at most one line per k-loop step. All tiles of a panel share the
// work, so that memory is read at an even rate.
struct ShareAhead {
  static constexpr bool kPlain = false;
  static constexpr int64_t kLines = (kColumns + 15) / 16;  // per row
  const float* next;
  int64_t b_row, left, line = 0;  // left: lines
  // Returns the share of a tile with `used` rows from row `i`, of `rows` rows of A.
  HM_INLINE static ShareAhead of(const float* panel, int64_t b_row, int64_t depth, int64_t i, int64_t used,
                                 int64_t rows) {
    const int64_t from = depth * i / rows, to = depth * (i + used) / rows;
    return {panel + from * b_row, b_row, (to - from) * kLines};
  }
  template <PanelOrder>
  HM_INLINE void fetch() {
    if (left <= 0) return;
    __builtin_prefetch(next + line * 16, 0, 2);
    --left;
    if (++line == kLines) line = 0, next += b_row;
  }
};
// Also packs the columns of B that the tile reads into a panel.
struct PackAhead : ShareAhead {
  float* to;
  HM_INLINE void keep(int v, vf row) {
    store(to + v * kWidth, row);
    if (v + 1 == kVectors) to += kColumns;
  }
};

// A part of a product that reads rows of B in place.
struct InPlace {
  const float *a, *b;
  int64_t a_row, b_row, rows, columns, c_row;
  float *to, *own_a, *own_b;  // own_a, own_b: copies of a block of A and of a panel of B
};

// Adds a block of the depth. The first tile of a panel of B packs it for the others at no extra cost. `below`: whether
// another block of `depth` rows of B follows.
HM_INLINE void multiply_in_place(const InPlace& x, int64_t k, int64_t depth, bool below, const Ending& end) {
  constexpr int64_t kRow = kRowsInPlaceStride;
  for (int64_t i = 0; i < x.rows; ++i)
    __builtin_memcpy(x.own_a + i * kRow, x.a + i * x.a_row + k, static_cast<size_t>(depth) * sizeof(float));
  const int64_t first = x.rows < kRows ? x.rows : kRows;
  for (int64_t j = 0; j < x.columns; j += kColumns) {
    const float* b = x.b + k * x.b_row + j;
    const int64_t some = x.columns - j < kColumns ? x.columns - j : kColumns;
    const bool whole = some == kColumns;
    const float* next = x.columns - j >= 2 * kColumns ? b + kColumns : below ? x.b + (k + depth) * x.b_row : b;
    if (whole)
      kTiles<PanelOrder::in_place, kVectors, PackAhead>[static_cast<size_t>(first - 1)](
          x.own_a, kRow, b, x.b_row, depth, x.to + j, x.c_row, kColumns, end.at(j),
          PackAhead{ShareAhead::of(next, x.b_row, depth, 0, first, x.rows), x.own_b});
    else
      pack_columns(b, x.b_row, some, depth, x.own_b, 0);
    for (int64_t i = whole ? first : 0; i < x.rows; i += kRows) {
      const int64_t used = x.rows - i < kRows ? x.rows - i : kRows, at = i * x.c_row + j;
      tile_for<PanelOrder::by_rows, ShareAhead>(used, some)(
          x.own_a + i * kRow, kRow, x.own_b, 0, depth, x.to + at, x.c_row, some, end.at(at),
          ShareAhead::of(next, x.b_row, whole ? depth : 0, i, used, x.rows));
    }
  }
}

// Micro-kernel for a whole tile that reads B in place, and packs it into a panel for the tiles below.
[[gnu::noinline]] void packing_tile(const float* a, const float* b, int64_t b_row, float* panel, int64_t depth,
                                    float* c, int64_t c_row, const Ending& end, NextTile next) {
  constexpr int64_t kAhead = 8;  // rows of B
  vf sum[kRows][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = vf{};
  for (int64_t k = 0; k < depth; ++k, a += kRows, b += b_row, panel += kColumns) {
    for (int64_t j = 0; j < kColumns; j += 16) __builtin_prefetch(b + kAhead * b_row + j);
    if (k % 4 == 0) next.fetch_c();
    if (k % 4 == 2) next.fetch_operand();
    vf row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + v * kWidth), store(panel + v * kWidth, row[v]);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const vf x = splat(a[i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[i][v] = fma(x, row[v], sum[i][v]);
    }
  }
  store_sums(sum, c, c_row, kColumns, end);
}

// Computes a part that packs its own blocks: A panel by panel, and B in the tiles of the first row panel.
HM_INLINE void multiply_own_blocks(const PackedContext& c, void* const* buffers, Range rows, Range columns,
                                   float* workspace) {
  const Product& p = c.product;
  const int64_t m = rows.end - rows.begin, n = columns.end - columns.begin;
  const float* a = static_cast<const float*>(buffers[p.a]) + rows.begin * p.a_row;
  const float* b = static_cast<const float*>(buffers[p.b]) + columns.begin;
  float* const to = static_cast<float*>(buffers[p.c]) + rows.begin * p.n + columns.begin;
  float *const own_a = workspace, *const own_b = workspace + kRows * kPackedDepth;
  const int64_t tiles_in_row = (n + kColumns - 1) / kColumns, whole = n / kColumns * kColumns;
  for (int64_t k = 0; k < p.k; k += kPackedDepth) {
    const int64_t depth = p.k - k < kPackedDepth ? p.k - k : kPackedDepth;
    const auto panel = [&](int64_t j) __attribute__((always_inline)) { return own_b + j * depth; };
    if (whole < n) pack_columns(b + k * p.b_row + whole, p.b_row, n - whole, depth, panel(whole), 0);
    const Ending end = ending_of(p, buffers, k).at(rows.begin * p.n + columns.begin);
    const int64_t next_k = p.k - k >= 2 * kPackedDepth ? k + kPackedDepth : k, quarter = depth / 4;
    const int64_t a_lines = (m + 15) / 16, b_lines = (n + 15) / 16;
    for (int64_t i = 0; i < m; i += kRows) {
      const int64_t used = m - i < kRows ? m - i : kRows;
      pack_rows(a + i + k * p.a_column, p.a_column, used, depth, own_a);
      for (int64_t j = 0; j < n; j += kColumns) {
        const int64_t at = i * p.n + j;
        if (used < kRows || j == whole) {
          if (i == 0 && j < whole) pack_columns(b + k * p.b_row + j, p.b_row, kColumns, depth, panel(j), 0);
          tile_for<PanelOrder::packed>(used, n - j)(own_a, 1, panel(j), 0, depth, to + at, p.n, n - j, end.at(at),
                                                    Ahead{own_a, 16, depth});
          continue;
        }
        // Each tile prefetches one column of lines over a quarter of the next block's depth.
        const int64_t tile = i / kRows * tiles_in_row + j / kColumns, line = tile / 4,
                      row = next_k + tile % 4 * quarter;
        const bool is_a = line < a_lines;
        const float* const next =
            is_a ? a + line * 16 + row * p.a_column : b + (line - a_lines) % b_lines * 16 + row * p.b_row;
        const bool is_last = j + kColumns >= n;
        const float* const next_c = to + (is_last ? m - i > kRows ? at - j + kRows * p.n : at : at + kColumns);
        const NextTile ahead{next_c, next, p.n, is_a ? p.a_column : p.b_row, depth};
        if (i == 0)
          packing_tile(own_a, b + k * p.b_row + j, p.b_row, panel(j), depth, to + at, p.n, end.at(at), ahead);
        else
          row_tile<PanelOrder::packed>(own_a, 1, panel(j), depth, to + at, p.n, end.at(at), ahead);
      }
      if (i > 0 || !p.sums || rows.begin > 0) continue;
      float* const sums = static_cast<float*>(buffers[p.sums]) + columns.begin;
      for (int64_t j = 0; j < n; j += kColumns)
        sum_columns(panel(j), kColumns, depth, n - j < kColumns ? n - j : kColumns, sums + j, k > 0);
    }
  }
}

// Returns the depth of the blocks of a product by_rows, all about equal.
HM_INLINE int64_t even_depth(int64_t depth) {
  const int64_t blocks = (depth + kRowsDepth - 1) / kRowsDepth;
  return ((depth + blocks - 1) / blocks + 15) / 16 * 16;
}

// Returns the tensors of the chain, at offset `place` of C.
HM_INLINE Beside beside_of(const Product& p, void* const* buffers, int64_t place) {
  Beside beside;
  for (uint32_t i = 0; p.chain && i < p.chain->n_registers && beside.count < Beside::kMost; ++i) {
    const ChainRegister& r = p.chain->registers[i];
    if ((r.place == Place::input || r.place == Place::output) && r.width == sizeof(float) && r.buffer != p.c)
      beside.at[beside.count++] = static_cast<const float*>(buffers[r.buffer]) + place;
  }
  return beside;
}

// Returns the sums of the second slice of the depth; the sums of the first are in C.
HM_INLINE float* second_sums(const PackedContext& c, void* const* buffers) {
  return static_cast<float*>(buffers[c.product.c + 1]) + c.a_floats + c.b_floats;
}

}  // namespace

// A piece is a column panel.
void pack_constant_b(const void* context, const void* b, uint64_t piece, void* packed) {
  const Product& p = static_cast<const PackedContext*>(context)->product;
  const int64_t j = static_cast<int64_t>(piece) * kColumns;
  pack_b(p, static_cast<const float*>(b) + j * p.b_column, p.n - j < kColumns ? p.n - j : kColumns, p.k,
         static_cast<float*>(packed), p.k * kColumns);
}

void packed_matmul(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const PackedContext*>(context);
  const bool packs = c.packs_a || (c.shares_b && !c.keeps_b);
  if (packs && phase == 0) return pack_shared(c, buffers, part);
  if (phase == (packs ? 2 : 1)) return end_halves(c.product, buffers, second_sums(c, buffers), c.sum_parts, part);
  const Product& p = c.product;
  const int64_t granule = c.shares_b ? kColumns : kColumns / 2;  // half panels if each part packs its own B
  const uint32_t grid = c.row_parts * c.column_parts, slice = part / grid, row = part % grid / c.column_parts,
                 column = part % c.column_parts;
  const int64_t i0 = slice_begin(p.m, kRows, c.row_parts, row), i1 = slice_begin(p.m, kRows, c.row_parts, row + 1);
  const int64_t j0 = slice_begin(p.n, granule, c.column_parts, column),
                j1 = slice_begin(p.n, granule, c.column_parts, column + 1);
  const int64_t k0 = slice_begin(p.k, kEvenGranule, c.depth_parts, slice),
                k1 = slice_begin(p.k, kEvenGranule, c.depth_parts, slice + 1);
  const float *a = static_cast<const float*>(buffers[p.a]), *b = static_cast<const float*>(buffers[p.b]);
  float* to = slice == 0 ? static_cast<float*>(buffers[p.c]) : second_sums(c, buffers);
  const float* packed_a = static_cast<const float*>(buffers[p.c + 1]);
  float* packed_b =
      c.keeps_b ? static_cast<float*>(buffers[p.c + 2])
                : static_cast<float*>(buffers[p.c + 1]) + c.a_floats + (c.shares_b ? 0 : part * c.b_part_floats);
  if (c.owns)
    return multiply_own_blocks(c, buffers, {i0, i1}, {j0, j1}, packed_b), end_product(p, buffers, i0, i1, j0, j1);
  if (c.in_place) {
    const InPlace x{a + i0 * p.a_row,
                    b + j0,
                    p.a_row,
                    p.b_row,
                    i1 - i0,
                    j1 - j0,
                    p.n,
                    to + i0 * p.n + j0,
                    packed_b,
                    packed_b + (i1 - i0) * kRowsInPlaceStride};
    for (int64_t k = k0; k < k1; k += kPackedDepth) {
      const int64_t depth = k1 - k < kPackedDepth ? k1 - k : kPackedDepth;
      const Ending end = slice == 0 ? ending_of(p, buffers, k) : Ending{k > k0 ? to : nullptr, 1};
      multiply_in_place(x, k, depth, k1 - k >= 2 * depth, end.at(i0 * p.n + j0));
    }
    if (c.depth_parts == 1) end_product(p, buffers, i0, i1, j0, j1);
    return;
  }
  const int64_t most = c.by_rows && c.shares_b ? even_depth(k1 - k0) : kPackedDepth;
  for (int64_t j = j0; j < j1; j += c.block_columns) {
    const int64_t columns = j1 - j < c.block_columns ? j1 - j : c.block_columns;
    for (int64_t k = k0; k < k1; k += most) {
      const int64_t depth = k1 - k < most ? k1 - k : most;
      const Ending end = slice == 0 ? ending_of(p, buffers, k) : Ending{k > k0 ? to : nullptr, 1};
      const float* columns_at = packed_b + (c.shares_b ? j * p.k + k * kColumns : 0);
      const int64_t b_panel = (c.shares_b ? p.k : depth) * kColumns;
      if (!c.shares_b) pack_b(p, b + k * p.b_row + j * p.b_column, columns, depth, packed_b, b_panel);
      for (int64_t i = i0; i < i1; i += kPackedRows) {
        const int64_t rows = i1 - i < kPackedRows ? i1 - i : kPackedRows;
        const Ending ending = end.at(i * p.n + j);
        if (c.packs_a)
          multiply<PanelOrder::packed>(packed_a + i * p.k + k * kRows, 1, p.k, rows, columns_at, b_panel, columns,
                                       depth, to + i * p.n + j, p.n, ending);
        else if (c.by_rows)
          multiply_rows<PanelOrder::by_rows>(a + i * p.a_row + k, p.a_row, p.a_row, rows, columns_at, b_panel, columns,
                                             depth, to + i * p.n + j, p.n, ending,
                                             k + depth == p.k ? beside_of(p, buffers, i * p.n + j) : Beside{});
        else
          multiply<PanelOrder::by_rows>(a + i * p.a_row + k, p.a_row, p.a_row, rows, columns_at, b_panel, columns,
                                        depth, to + i * p.n + j, p.n, ending);
        if (k + depth == p.k && c.depth_parts == 1) end_product(p, buffers, i, i + rows, j, j + columns);
      }
    }
  }
}

}  // namespace harmonics::cpu::HM_ISA
