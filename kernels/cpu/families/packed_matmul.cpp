// Large products with packed panels, for any strides of the operands. A row-major A is read in place.
#include "../family.hpp"
#include "../elementwise.hpp"
#include "../matmul.hpp"

namespace harmonics::cpu {
namespace {

// A packed product. Phases: pack shared operands, multiply, reduce the slices of the depth.
struct PackedContext : MatmulContext {
  uint32_t depth_parts = 1;  // slices of the depth: the first accumulates in C, the others in the workspace
  uint32_t sum_parts = 0;    // parts of the phase that adds the slices
  bool packs_a = false;      // A's rows are not contiguous; all of A is packed at the start of the workspace
  bool shares_b = false;     // all of B is packed once, after A or in advance; else each part packs its own blocks
  bool in_place = false;     // rows of B are read in place; a part copies blocks of its rows of A, and panels of B
  bool keeps_b = false;      // B was packed at compile time, into the buffer after the workspace
  bool adds_bias = false;    // tiles add the bias
  bool by_rows = false;      // loops over panels of B inside a row panel of A
  bool owns = false;         // A's rows are not contiguous; each part packs its own blocks of both operands
  uint32_t pack_parts = 0;   // parts of phase 0, for each operand
  int64_t a_floats = 0, b_floats = 0;
  int64_t block_columns = 0;   // columns of B packed, or computed, at a time
  int64_t b_part_floats = 0;   // block of one part
  uint64_t* places = nullptr;  // `owns`: where each part is, kPlaceStride apart
};
constexpr uint32_t kPlaceStride = 16;  // two cache lines

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "column_sums.hpp"
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
                                    float* c, int64_t c_row, const Ending& end, const NextTile& next) {
  constexpr int64_t kAhead = 8;  // rows of B
  vf sum[kRows][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = vf{};
  const float *operand = next.operand, *unpacked = next.unpacked;
  float* packed = next.packed;
  int64_t unpacked_rows = next.unpacked_rows;
  for (int64_t k = 0; k < depth; ++k, a += kRows, b += b_row, panel += kColumns) {
    for (int64_t j = 0; j < kColumns; j += 16) __builtin_prefetch(b + kAhead * b_row + j);
    if (k % 4 == 0 && k < 4 * kRows * (kColumns / 16))
      __builtin_prefetch(next.c + k / 4 % kRows * next.c_row + k / 4 / kRows * 16, 1);
    if (k % 4 == 1 && unpacked_rows > 0) {
      __builtin_memcpy(packed, unpacked, kRows * sizeof(float));
      unpacked += next.unpacked_step, packed += kRows, --unpacked_rows;
    }
    if (k % 4 == 2) {
      __builtin_prefetch(operand, 0, 2);
      operand += next.step;
    }
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

// The rows of the next panel of A that are not packed yet. The tiles of a row share them.
struct PanelBelow {
  const float* from;
  float* to;
  int64_t step, width, left;  // left: rows
  HM_INLINE void give(NextTile& tile, int64_t tiles, int64_t most) {
    if (width < kRows || left <= 0) return;
    const int64_t wanted = (left + tiles - 1) / tiles, rows = wanted < most ? wanted : most;
    tile.unpacked = from, tile.packed = to, tile.unpacked_step = step, tile.unpacked_rows = rows;
    from += rows * step, to += rows * kRows, left -= rows;
  }
  HM_INLINE void finish() const {
    if (left > 0) pack_rows(from, step, width, left, to);
  }
};
// Whether a panel of A begins in a cache line, or ends in one, that the panel before it does not touch.
HM_INLINE bool adds_line(const float* panel, bool is_first) {
  const uint64_t at = reinterpret_cast<uintptr_t>(panel) % 64;
  return is_first || at == 0 || at + kRows * sizeof(float) > 64;
}

// Where the thread is that computes a part: in which block of the depth, which row panel of A it takes next, and how
// many row panels it computes. `end` 0: no thread computes the part. One word, so that another thread can take the last
// row panels of all blocks that are left.
struct PartPlace {
  uint32_t block, panel, end;
  static constexpr uint32_t kBits = 21;
  HM_INLINE uint64_t word() const { return uint64_t{block} << 2 * kBits | uint64_t{panel} << kBits | end; }
  HM_INLINE static PartPlace of(uint64_t word) {
    constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;
    return {static_cast<uint32_t>(word >> 2 * kBits), static_cast<uint32_t>(word >> kBits & kMask),
            static_cast<uint32_t>(word & kMask)};
  }
};
// Records that the thread of a part begins a panel, unless another thread has taken it. Returns the end of its panels.
HM_INLINE int64_t take_panel(uint64_t* place, int64_t block, int64_t panel) {
  uint64_t now = __atomic_load_n(place, __ATOMIC_RELAXED);
  for (;;) {
    const uint32_t end = PartPlace::of(now).end;
    if (panel >= end) return end;
    const uint64_t next = PartPlace{static_cast<uint32_t>(block), static_cast<uint32_t>(panel + 1), end}.word();
    if (__atomic_compare_exchange_n(place, &now, next, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return end;
  }
}
// Panels taken from the thread that computes a part; its place after that. `count` 0: few were left.
struct TakenPanels {
  PartPlace place;
  uint32_t count;
};
// Takes the last panels of what is left of a part: two fifths, because the taker packs B again.
HM_INLINE TakenPanels take_last_panels(uint64_t* place, uint32_t blocks) {
  constexpr uint32_t kLeast = 2, kLeastLeft = 6;
  for (;;) {
    uint64_t now = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    PartPlace at = PartPlace::of(now);
    const uint32_t left = at.end == 0 ? 0 : (blocks - 1 - at.block) * at.end + at.end - at.panel;
    if (left < kLeastLeft) return {at, 0};
    const uint32_t fair = left * 2 / (5 * (blocks - at.block)), free = at.end - at.panel;
    const uint32_t count = fair < free ? fair : free;
    if (fair < kLeast) return {at, 0};
    if (count < kLeast) {  // the next block begins soon
      __builtin_ia32_pause();
      continue;
    }
    at.end -= count;
    if (__atomic_compare_exchange_n(place, &now, at.word(), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      return {at, count};
  }
}

// Computes a part that packs its own blocks, from block `first` of the depth: A panel by panel, and B in the tiles of
// the first row panel. `place`: where other threads read how far it is; null: it computes all rows.
HM_INLINE void multiply_own_blocks(const PackedContext& c, void* const* buffers, Range rows, Range columns,
                                   float* workspace, uint32_t first, uint64_t* place) {
  const Product& p = c.product;
  const int64_t all = rows.end - rows.begin, n = columns.end - columns.begin;
  int64_t m = all;  // less what other threads have taken
  const float* a = static_cast<const float*>(buffers[p.a]) + rows.begin * p.a_row;
  const float* b = static_cast<const float*>(buffers[p.b]) + columns.begin;
  float* const to = static_cast<float*>(buffers[p.c]) + rows.begin * p.n + columns.begin;
  float *own_a = workspace, *next_a = workspace + kRows * kPackedDepth;  // panels of this row of tiles and the next
  float* const own_b = workspace + 2 * kRows * kPackedDepth;
  const int64_t whole = n / kColumns * kColumns;
  int64_t packed_row = -1, packed_depth = -1;  // of the panel in own_a
  for (int64_t k = int64_t{first} * kPackedDepth; k < p.k; k += kPackedDepth) {
    const int64_t depth = p.k - k < kPackedDepth ? p.k - k : kPackedDepth;
    const auto panel = [&](int64_t j) __attribute__((always_inline)) { return own_b + j * depth; };
    if (whole < n) pack_columns(b + k * p.b_row + whole, p.b_row, n - whole, depth, panel(whole), 0);
    const Ending end = ending_of(p, buffers, k).at(rows.begin * p.n + columns.begin);
    const int64_t next_k = p.k - k >= 2 * kPackedDepth ? k + kPackedDepth : k, quarter = depth / 4;
    const int64_t b_lines = (n + 15) / 16;
    int64_t b_line = 0, b_quarter = 0;
    for (int64_t i = 0;; i += kRows) {
      if (place) {
        const int64_t own = take_panel(place, k / kPackedDepth, i / kRows) * kRows;
        m = own < all ? own : all;
      }
      if (i >= m) break;
      const int64_t used = m - i < kRows ? m - i : kRows;
      if (packed_row != i || packed_depth != k) pack_rows(a + i + k * p.a_column, p.a_column, used, depth, own_a);
      // The tiles of a row pack the next panel, which may be the first of the next block, and fetch the one after it.
      const int64_t below = i + kRows < m ? i + kRows : 0, below_k = below > 0 ? k : k + kPackedDepth;
      PanelBelow unpacked{a + below + below_k * p.a_column, next_a, p.a_column, m - below < kRows ? m - below : kRows,
                          p.k - below_k < kPackedDepth ? p.k - below_k : kPackedDepth};
      const int64_t after = below + kRows < m ? below + kRows : 0;
      const float* const fetched = a + after + (after > 0 && below > 0 ? k : next_k) * p.a_column;
      const bool fetches_a = adds_line(fetched, after == 0);
      for (int64_t j = 0; j < n; j += kColumns) {
        const int64_t at = i * p.n + j;
        if (used < kRows || j == whole) {
          if (i == 0 && j < whole) pack_columns(b + k * p.b_row + j, p.b_row, kColumns, depth, panel(j), 0);
          tile_for<PanelOrder::packed>(used, n - j)(own_a, 1, panel(j), 0, depth, to + at, p.n, n - j, end.at(at),
                                                    Ahead{own_a, 16, depth});
          continue;
        }
        // Each tile fetches a column of lines over a quarter of a block's depth: of A, then of the next block of B.
        const bool is_a = fetches_a && j < 4 * kColumns;
        const float* next = fetched + kRows - 1 + j / kColumns * quarter * p.a_column;
        if (!is_a) next = b + b_line % b_lines * 16 + (next_k + b_quarter * quarter) * p.b_row;
        if (!is_a && ++b_quarter == 4) b_quarter = 0, ++b_line;
        const bool is_last = j + kColumns >= n;
        const float* const next_c = to + (is_last ? m - i > kRows ? at - j + kRows * p.n : at : at + kColumns);
        NextTile ahead{next_c, next, p.n, is_a ? p.a_column : p.b_row};
        unpacked.give(ahead, (n - j + kColumns - 1) / kColumns, quarter);
        if (i == 0)
          packing_tile(own_a, b + k * p.b_row + j, p.b_row, panel(j), depth, to + at, p.n, end.at(at), ahead);
        else
          row_tile<PanelOrder::packed>(own_a, 1, panel(j), depth, to + at, p.n, end.at(at), ahead);
      }
      unpacked.finish();
      float* const spare = own_a;
      own_a = next_a, next_a = spare;
      packed_row = below, packed_depth = below_k;
      if (i > 0 || !p.sums || rows.begin > 0) continue;
      float* const sums = static_cast<float*>(buffers[p.sums]) + columns.begin;
      for (int64_t j = 0; j < n; j += kColumns)
        sum_columns(panel(j), kColumns, depth, n - j < kColumns ? n - j : kColumns, sums + j, k > 0);
    }
  }
}

// Computes a part of a product that packs its own blocks, or helps with one. The first half of the parts is followed by
// help with the second half, and the second half by help with the first: of two threads, each has one half and then
// helps the other.
HM_INLINE void multiply_part(const PackedContext& c, void* const* buffers, uint32_t part) {
  const Product& p = c.product;
  const uint32_t parts = c.row_parts * c.column_parts, half = parts / 2;
  const uint32_t quarter = part / half;
  const bool helps = quarter % 2 == 1;
  const uint32_t number = (quarter == 1 || quarter == 2 ? half : 0) + part % half;
  const uint32_t row = number / c.column_parts, column = number % c.column_parts;
  const Range rows{slice_begin(p.m, kRows, c.row_parts, row), slice_begin(p.m, kRows, c.row_parts, row + 1)},
      columns{slice_begin(p.n, kColumns / 2, c.column_parts, column),
              slice_begin(p.n, kColumns / 2, c.column_parts, column + 1)};
  float* const workspace = static_cast<float*>(buffers[p.c + 1]) + c.a_floats + part * c.b_part_floats;
  uint64_t* const place = c.places + number * kPlaceStride;
  if (!helps) {
    const auto panels = static_cast<uint32_t>((rows.end - rows.begin + kRows - 1) / kRows);
    __atomic_store_n(place, PartPlace{0, 0, panels}.word(), __ATOMIC_RELEASE);
    multiply_own_blocks(c, buffers, rows, columns, workspace, 0, place);
    const uint64_t last = __atomic_exchange_n(place, 0, __ATOMIC_ACQ_REL);
    const int64_t end = rows.begin + int64_t{PartPlace::of(last).end} * kRows;
    return end_product(p, buffers, rows.begin, end < rows.end ? end : rows.end, columns.begin, columns.end);
  }
  const auto blocks = static_cast<uint32_t>((p.k + kPackedDepth - 1) / kPackedDepth);
  for (;;) {
    const TakenPanels taken = take_last_panels(place, blocks);
    if (taken.count == 0) return;
    const int64_t begin = rows.begin + int64_t{taken.place.end} * kRows, end = begin + int64_t{taken.count} * kRows;
    const Range last{begin, end < rows.end ? end : rows.end};
    multiply_own_blocks(c, buffers, last, columns, workspace, taken.place.block, nullptr);
    end_product(p, buffers, last.begin, last.end, columns.begin, columns.end);
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
  if (c.owns) return multiply_part(c, buffers, part);
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
  Product rest = p;  // what tiles leave to the end
  rest.has_bias = false;
  for (int64_t j = j0; j < j1; j += c.block_columns) {
    const int64_t columns = j1 - j < c.block_columns ? j1 - j : c.block_columns;
    for (int64_t k = k0; k < k1; k += most) {
      const int64_t depth = k1 - k < most ? k1 - k : most;
      Ending end = slice == 0 ? ending_of(p, buffers, k) : Ending{k > k0 ? to : nullptr, 1};
      const bool is_last = k + depth == p.k;
      if (c.adds_bias && is_last) end.bias = static_cast<const float*>(buffers[p.bias]) + j;
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
                                             is_last ? beside_of(p, buffers, i * p.n + j) : Beside{});
        else
          multiply<PanelOrder::by_rows>(a + i * p.a_row + k, p.a_row, p.a_row, rows, columns_at, b_panel, columns,
                                        depth, to + i * p.n + j, p.n, ending);
        if (!is_last || c.depth_parts > 1) continue;
        if (c.adds_bias)
          end_product(rest, buffers, i, i + rows, j, j + columns);
        else
          end_product(p, buffers, i, i + rows, j, j + columns);
      }
    }
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

#include <string>

#include "../product_costs.hpp"
#include "../routes.hpp"

HM_VECTOR_CODE(packed_matmul)
HM_VECTOR_FUNCTION(Packing, pack_constant_b)

namespace harmonics::cpu {

using namespace product_costs;

namespace {

// Rounds up to whole cache lines, so that vectors of B do not cross lines.
int64_t lines(int64_t floats) { return (floats + 15) / 16 * 16; }
// Size of a block of rows or columns in floats, at most that of the operand.
int64_t block_floats(int64_t n, int64_t panel, int64_t most, int64_t depth) {
  return std::min(most, panels(n, panel) * panel) * std::min(kPackedDepth, depth);
}

// Returns the name of the layout that pack_constant_b writes: layout, instruction set and version.
const char* packing_of_b() {
  static const std::string name = std::string("columns/") + isa().name + "/1";
  return name.c_str();
}

// Whether to use PackedContext::by_rows. For a smaller depth, moving C takes most of the time.
bool suits_rows(const Product& p) { return p.m >= kManyRows && p.k > kShortDepth && p.a_column == 1; }
// Size of a part for by_rows: a block of B and C fits the L2 cache, and B is read few times.
constexpr int64_t kPartRows = 2 * kPackedRows, kPartColumns = kPackedColumns;

// Whether each part packs its own blocks of both operands: weight gradients over many samples. Packing all of A would
// write and read it once more.
bool suits_own_blocks(const Product& p) {
  return p.a_column != 1 && p.b_column == 1 && p.k >= kManyRows && std::min(p.m, p.n) >= 256;
}
struct OwnBlocks : PackedContext {
  std::vector<uint64_t> storage;  // of `places`
};
void answer_own_blocks(std::unique_ptr<OwnedGrid> grid, double, hx_kernel& out) {
  constexpr int64_t kSide = 384;  // of a part: its block of B and C fit the L2 cache
  auto c = std::make_unique<OwnBlocks>();
  static_cast<MatmulContext&>(*c) = *grid;
  const Product& p = c->product;
  const int64_t row_panel = packed_row_panel(isa().vector), column_panel = packed_column_panel(isa().vector);
  c->batch_parts = 1;
  c->row_parts = static_cast<uint32_t>(panels(p.m, kSide));
  c->column_parts = static_cast<uint32_t>(panels(p.n, kSide));
  // One more slice, although the operands are packed again: it gives a second thread work, or makes the parts even.
  if (c->row_parts * c->column_parts < 4) ++(p.n > p.m ? c->column_parts : c->row_parts);
  if (c->row_parts * c->column_parts % 2 == 1) ++(p.n > p.m ? c->column_parts : c->row_parts);
  c->owns = true;
  const int64_t widest = panels(panels(p.n, column_panel / 2), c->column_parts) * column_panel / 2;
  c->b_part_floats = (2 * row_panel + panels(widest, column_panel) * column_panel) * kPackedDepth;
  const uint32_t parts = c->row_parts * c->column_parts;
  c->storage.resize(size_t{parts} * kPlaceStride);
  c->places = c->storage.data();
  const uint64_t workspace = static_cast<uint64_t>(c->b_part_floats) * 2 * parts * sizeof(float);
  answer<PackedContext>(out, std::move(c), chosen::packed_matmul(), "packed blocks", {2 * parts}).workspace = workspace;
}

void answer_packed(std::unique_ptr<OwnedGrid> grid, double nanoseconds, hx_kernel& out) {
  auto c = std::make_unique<PackedContext>();
  static_cast<MatmulContext&>(*c) = *grid;
  const Product& p = c->product;
  // Column slices pack their own part of B, which stays in the L2 cache; row slices share one packed copy.
  const int64_t row_panel = packed_row_panel(isa().vector), column_panel = packed_column_panel(isa().vector);
  const uint32_t wanted = parts_for(nanoseconds, INT32_MAX, kPackedGrain);
  c->batch_parts = c->row_parts = c->column_parts = 1;
  c->depth_parts = p.chain ? 1 : depth_parts_of(p, wanted);
  c->by_rows = suits_rows(p);
  const bool by_columns = !c->by_rows && is_cut_by_columns(p, wanted);
  if (c->by_rows) {
    while (c->depth_parts * c->row_parts < wanted && p.m >= kPartRows * c->row_parts) c->row_parts *= 2;
    while (c->depth_parts * c->row_parts * c->column_parts < wanted && p.n >= 2 * kPartColumns * c->column_parts)
      c->column_parts *= 2;
  }
  const uint32_t least = c->by_rows ? std::min(wanted, kUsualParts) : wanted;
  while (by_columns && c->depth_parts * c->column_parts < wanted && p.n >= 64 * static_cast<int64_t>(c->column_parts))
    c->column_parts *= 2;
  while (c->depth_parts * c->row_parts * c->column_parts < least && p.m >= 24 * static_cast<int64_t>(c->row_parts))
    c->row_parts *= 2;
  c->adds_bias = c->by_rows && p.has_bias && c->depth_parts == 1;
  c->packs_a = p.a_column != 1;
  if (c->packs_a) c->a_floats = lines(panels(p.m, row_panel) * row_panel * p.k);
  // Not for a row-major B, which is efficient to read and whose rows are skipped for zeros of A; nor for few rows of A,
  // which do not repay a second copy of B.
  c->keeps_b = p.constant_b && p.b_column != 1 && p.m >= kLeastKeptRows;
  c->shares_b = c->keeps_b || c->row_parts > 1;
  const uint32_t parts = c->depth_parts * c->row_parts * c->column_parts;
  const int64_t columns = panels(panels(p.n, column_panel), c->column_parts) * column_panel;  // per part, at most
  const int64_t depth = panels(panels(p.k, kEvenGranule), c->depth_parts) * kEvenGranule;     // per part, at most
  // If a single block of rows uses the packed B, pack one panel at a time, which stays in the L1 cache.
  c->block_columns = !c->shares_b && p.m <= kPackedRows ? column_panel : kPackedColumns;
  c->b_part_floats = block_floats(columns, column_panel, c->block_columns, std::min(depth, p.k));
  c->in_place = p.b_column == 1 && !c->packs_a && !c->shares_b && p.m < kLeastKeptRows;
  if (c->in_place) c->b_part_floats = p.m * kRowsInPlaceStride + column_panel * kPackedDepth;
  const int64_t all_b = panels(p.n, column_panel) * column_panel * p.k;
  c->b_floats = c->keeps_b ? 0 : c->shares_b ? all_b : c->b_part_floats * parts;
  const bool packs_b = c->shares_b && !c->keeps_b;
  if (c->packs_a || packs_b) {
    const int64_t packed = c->a_floats + (packs_b ? c->b_floats : 0);
    c->pack_parts =
        parts_for(static_cast<double>(packed) * kPackNanoseconds,
                  std::max(c->packs_a ? panels(p.m, row_panel) : 0, packs_b ? panels(p.n, column_panel) : 0));
  }
  c->b_floats = lines(c->b_floats);
  const uint64_t workspace =
      static_cast<uint64_t>(c->a_floats + c->b_floats + (c->depth_parts - 1) * p.m * p.n) * sizeof(float);
  std::vector<uint32_t> phases;
  if (c->packs_a || packs_b) phases.push_back(c->pack_parts);
  phases.push_back(parts);
  if (c->depth_parts > 1) phases.push_back(c->sum_parts = parts_of_sum(p));
  const bool keeps_b = c->keeps_b;
  const uint32_t b = p.b;
  answer<PackedContext>(out, std::move(c), chosen::packed_matmul(), "packed matmul", phases).workspace = workspace;
  if (!keeps_b) return;
  out.packed_bytes = static_cast<uint64_t>(all_b) * sizeof(float);
  out.packed_piece = static_cast<uint64_t>(column_panel * p.k) * sizeof(float);
  out.packed_input = b;
  out.pack = chosen::pack_constant_b();
  out.packing = packing_of_b();
}

}  // namespace

constinit const Route routes::own_blocks{Route::descends,
                                         [](const Product& p) { return is_packed_here(p) && suits_own_blocks(p); },
                                         packed_nanoseconds, answer_own_blocks};
constinit const Route routes::packed{Route::descends, is_packed_here, packed_nanoseconds, answer_packed};

}  // namespace harmonics::cpu

#endif
