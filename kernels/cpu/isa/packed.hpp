// Packing and micro-kernels of products (Goto, van de Geijn 2008). A tile is the register block of the micro-kernel.
// Private to the including translation unit.
#pragma once

#include <array>
#include <utility>

#include "../matmul.hpp"

#include "simd.hpp"
#include "transpose.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr int kRows = packed_row_panel(kWidth);
constexpr int64_t kColumns = packed_column_panel(kWidth);
constexpr int kVectors = kColumns / kWidth;

// Layout of a tile's operands.
//   by_rows: a(i, k) = a[i * a_step + k]; b is packed, [depth, kColumns].
//   packed: a(i, k) = a[i + k * kRows]; b is packed.
//   by_depth: a(i, k) = a[i + k * a_step], b(k, j) = b[j + k * b_step]; full columns only.
//   in_place: a as in by_rows, b as in by_depth.
enum class PanelOrder { by_rows, packed, by_depth, in_place };

// Prefetches one cache line per k-loop step: down `rows` rows, then the next line of these rows. Evenly spaced
// prefetches do not stall the micro-kernel.
struct Ahead {
  static constexpr bool kPlain = false;  // true: C is an L1-resident buffer of whole panels, and is not prefetched
  const float* at;
  int64_t step, rows, fetched = 0;
  template <PanelOrder kOrder>
  HM_INLINE void fetch() {
    __builtin_prefetch(at, 0, kOrder == PanelOrder::by_rows ? 3 : 2);
    at += step;
    if (++fetched == rows) fetched = 0, at += 16 - rows * step;
  }
};
// Strides along k, and whether `a` is contiguous along k.
template <PanelOrder kOrder>
constexpr bool kAlongRows = kOrder == PanelOrder::by_rows || kOrder == PanelOrder::in_place;
template <PanelOrder kOrder>
HM_INLINE int64_t a_stride(int64_t a_step) {
  return kAlongRows<kOrder> ? 1 : kOrder == PanelOrder::packed ? kRows : a_step;
}
template <PanelOrder kOrder>
HM_INLINE int64_t b_stride(int64_t b_step) {
  return kOrder == PanelOrder::by_depth || kOrder == PanelOrder::in_place ? b_step : kColumns;
}

// Epilogue of a tile: C = sum, or C = old + factor * sum. `old` has the layout of C and may be C.
struct Ending {
  const float* old;  // null: C = sum
  float factor;
  const float* bias = nullptr;  // of the tile's columns, to be added to C; only for row_tile and tiles by rows
  HM_INLINE Ending at(int64_t place) const { return {old ? old + place : nullptr, factor, bias}; }
  HM_INLINE Ending at(int64_t place, int64_t column) const {
    return {old ? old + place : nullptr, factor, bias ? bias + column : nullptr};
  }
};

// Applies the epilogue to the accumulators of `columns` columns and stores them.
template <int kUsed, int kUsedVectors>
HM_INLINE void store_sums(const vf (&sum)[kUsed][kUsedVectors], float* c, int64_t c_row, int64_t columns,
                          const Ending& end) {
  const float *const old = end.old, *const bias = end.bias;
  const vf factor = splat(end.factor);
  const auto each = [&](auto put) __attribute__((always_inline)) {
#pragma GCC unroll 12
    for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kUsedVectors; ++v) put(i * c_row + v * kWidth, v * kWidth, sum[i][v]);
  };
  const bool is_whole = columns >= kUsedVectors * kWidth;
  if (is_whole && bias) {
    vf more[kUsedVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kUsedVectors; ++v) more[v] = load(bias + v * kWidth);
    if (old)
      each([&](int64_t at, int64_t j, vf s)
               __attribute__((always_inline)) { store(c + at, fma(factor, s, load(old + at)) + more[j / kWidth]); });
    else
      each([&](int64_t at, int64_t j, vf s) __attribute__((always_inline)) { store(c + at, s + more[j / kWidth]); });
  } else if (is_whole && old) {
    each([&](int64_t at, int64_t, vf s)
             __attribute__((always_inline)) { store(c + at, fma(factor, s, load(old + at))); });
  } else if (is_whole) {
    each([&](int64_t at, int64_t, vf s) __attribute__((always_inline)) { store(c + at, s); });
  } else {
    each([&](int64_t at, int64_t j, vf s) __attribute__((always_inline)) {
      const int64_t n = columns - j < kWidth ? columns - j : kWidth;
      if (n <= 0) return;
      if (old) s = fma(factor, s, load_part(old + at, n));
      store_part(c + at, bias ? s + load_part(bias + j, n) : s, n);
    });
  }
}

// Micro-kernel for kUsed rows and the first kUsedVectors vectors of a panel: all or half of them.
template <int kUsed, PanelOrder kOrder, int kUsedVectors, typename Fetch>
HM_INLINE void tile(const float* a, int64_t a_step, const float* b, int64_t b_step, int64_t depth, float* c,
                    int64_t c_row, int64_t columns, const Ending& end, Fetch ahead) {
  vf sum[kUsed][kUsedVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kUsedVectors; ++v) sum[i][v] = vf{};
  // Prefetches C, so that the stores after the k-loop do not wait for memory.
  if constexpr (!Fetch::kPlain)
    for (int i = 0; i < kUsed; ++i)
      for (int64_t j = 0; j < kUsedVectors * kWidth && j < columns; j += 16) __builtin_prefetch(c + i * c_row + j, 1);
  for (int64_t k = 0; k < depth; ++k, a += a_stride<kOrder>(a_step), b += b_stride<kOrder>(b_step)) {
    ahead.template fetch<kOrder>();
    vf row[kUsedVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kUsedVectors; ++v) row[v] = load(b + v * kWidth);
    if constexpr (kOrder == PanelOrder::in_place) {
#pragma GCC unroll 4
      for (int v = 0; v < kUsedVectors; ++v) ahead.keep(v, row[v]);
    }
#pragma GCC unroll 12
    for (int i = 0; i < kUsed; ++i) {
      const vf x = splat(a[kAlongRows<kOrder> ? i * a_step : i]);
#pragma GCC unroll 4
      for (int v = 0; v < kUsedVectors; ++v) sum[i][v] = fma(x, row[v], sum[i][v]);
    }
  }
  store_sums(sum, c, c_row, Fetch::kPlain ? kUsedVectors * kWidth : columns, end);
}

// Micro-kernel for columns that fill at most half a vector.
template <int kUsed, PanelOrder kOrder, typename Fetch>
HM_INLINE void narrow_tile(const float* a, int64_t a_step, const float* b, int64_t b_step, int64_t depth, float* c,
                           int64_t c_row, int64_t columns, const Ending& end, Fetch ahead) {
  vh sum[kUsed];
#pragma GCC unroll 12
  for (int i = 0; i < kUsed; ++i) sum[i] = vh{}, __builtin_prefetch(c + i * c_row, 1);
  for (int64_t k = 0; k < depth; ++k, a += a_stride<kOrder>(a_step), b += b_stride<kOrder>(b_step)) {
    ahead.template fetch<kOrder>();
    const vh row = load_half(b, kWidth / 2);
#pragma GCC unroll 12
    for (int i = 0; i < kUsed; ++i) sum[i] = fma_half(a[kAlongRows<kOrder> ? i * a_step : i], row, sum[i]);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kUsed; ++i) {
    const int64_t at = i * c_row;
    vh value = end.old ? fma_half(end.factor, sum[i], load_half(end.old + at, columns)) : sum[i];
    if (end.bias) value += load_half(end.bias, columns);
    store_half(c + at, value, columns);
  }
}

template <int kUsed, PanelOrder kOrder, int kUsedVectors, typename Fetch>
[[gnu::noinline, maybe_unused]] void tile_out(const float* a, int64_t a_step, const float* b, int64_t b_step,
                                              int64_t depth, float* c, int64_t c_row, int64_t columns,
                                              const Ending& end, const Fetch& ahead) {
  if constexpr (kUsedVectors == 0)
    narrow_tile<kUsed, kOrder>(a, a_step, b, b_step, depth, c, c_row, columns, end, ahead);
  else
    tile<kUsed, kOrder, kUsedVectors>(a, a_step, b, b_step, depth, c, c_row, columns, end, ahead);
}
template <typename Fetch>
using Tile = void (*)(const float*, int64_t, const float*, int64_t, int64_t, float*, int64_t, int64_t, const Ending&,
                      const Fetch&);
template <PanelOrder kOrder, int kUsedVectors, typename Fetch, int... kLess>
constexpr std::array<Tile<Fetch>, sizeof...(kLess)> tiles_of(std::integer_sequence<int, kLess...>) {
  return {tile_out<kLess + 1, kOrder, kUsedVectors, Fetch>...};
}
// Micro-kernels by rows - 1. kUsedVectors 0: half a vector.
template <PanelOrder kOrder, int kUsedVectors, typename Fetch>
constexpr auto kTiles = tiles_of<kOrder, kUsedVectors, Fetch>(std::make_integer_sequence<int, kRows>());
// Returns the micro-kernel for at most kRows x kColumns. `Fetch`: a prefetch policy such as Ahead.
template <PanelOrder kOrder, typename Fetch = Ahead>
HM_INLINE Tile<Fetch> tile_for(int64_t rows, int64_t columns) {
  const auto at = static_cast<size_t>((rows < kRows ? rows : kRows) - 1);
  if constexpr (kHalves)
    if (columns <= kWidth / 2) return kTiles<kOrder, 0, Fetch>[at];
  return columns <= kColumns / 2 ? kTiles<kOrder, kVectors / 2, Fetch>[at] : kTiles<kOrder, kVectors, Fetch>[at];
}

// Tensors with the layout of C that an elementwise epilogue reads and writes.
struct Beside {
  static constexpr int64_t kMost = 4;
  const float* at[kMost];
  int64_t count = 0;
};

// Rows of A from three pointers and two distances: all addresses of a tile's rows stay in registers.
struct TileRows {
  const float* fours[(kRows + 3) / 4];
  int64_t row, three_rows;
  HM_INLINE TileRows(const float* a, int64_t a_row) : row(a_row), three_rows(3 * a_row) {
    for (int i = 0; i < (kRows + 3) / 4; ++i) fours[i] = a + 4 * i * a_row;
  }
  // Returns element kAt of row kRow, in all lanes.
  template <int kRow, int kAt>
  HM_INLINE vf at() const {
    const float* const p = fours[kRow / 4];
#if defined(__AVX512F__)
    // The operand that no instruction names tells the compiler that memory behind `p` is read.
    const auto& memory = *reinterpret_cast<const float(*)[1 << 24]>(p);
    constexpr int kByte = 4 * kAt;
    vf x;
    if constexpr (kRow % 4 == 0)
      __asm__("vbroadcastss %c2(%1), %0" : "=v"(x) : "r"(p), "i"(kByte), "m"(memory));
    else if constexpr (kRow % 4 == 1)
      __asm__("vbroadcastss %c3(%1,%2,4), %0" : "=v"(x) : "r"(p), "r"(row), "i"(kByte), "m"(memory));
    else if constexpr (kRow % 4 == 2)
      __asm__("vbroadcastss %c3(%1,%2,8), %0" : "=v"(x) : "r"(p), "r"(row), "i"(kByte), "m"(memory));
    else
      __asm__("vbroadcastss %c3(%1,%2,4), %0" : "=v"(x) : "r"(p), "r"(three_rows), "i"(kByte), "m"(memory));
    return x;
#else
    return splat(p[(kRow % 4) * row + kAt]);
#endif
  }
  HM_INLINE void advance(int64_t k) {
    for (auto& p : fours) p += k;
  }
};

// What a tile does for later ones, a little of each every four k-loop steps. Passed by reference: a copy would read in
// whole vectors what was just written in parts.
struct NextTile {
  const float *c, *operand;  // C of the next tile, to be fetched for writing, and another operand, line by line
  int64_t c_row, step;
  const float* const* beside = nullptr;  // tensors of this tile's epilogue, to be fetched
  int64_t beside_at = 0, besides = 0;
  const float* unpacked = nullptr;  // rows of the next panel of A, to be packed
  float* packed = nullptr;
  int64_t unpacked_step = 0, unpacked_rows = 0;

  // Returns the lines, a row of C apart, to fetch in the `i`th kRows times four steps; null: none.
  HM_INLINE const float* lines(int64_t i) const {
    constexpr int64_t kLines = kColumns / 16;
    if (i < kLines) return c + 16 * i;
    const int64_t tensor = i / kLines - 1;
    return tensor < besides ? beside[tensor] + beside_at + i % kLines * 16 : nullptr;
  }
};

// Micro-kernel for a whole tile in a loop over panels of B inside a row panel of A: B streams from the L2 cache.
template <PanelOrder kOrder>
[[gnu::noinline, maybe_unused]] void row_tile(const float* a, int64_t a_row, const float* b, int64_t depth, float* c,
                                              int64_t c_row, const Ending& end, const NextTile& next) {
  vf sum[kRows][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = vf{};
  TileRows rows(a, a_row);
  const auto add = [&]<int kAt>() __attribute__((always_inline)) {
    vf row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + kAt * kColumns + v * kWidth);
    const auto each = [&]<int... kRow>(std::integer_sequence<int, kRow...>) __attribute__((always_inline)) {
      const auto one = [&]<int kI>() __attribute__((always_inline)) {
        vf x;
        if constexpr (kAlongRows<kOrder>)
          x = rows.template at<kI, kAt>();
        else
          x = splat(a[kAt * kRows + kI]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) add_product(sum[kI][v], x, row[v]);
      };
      (one.template operator()<kRow>(), ...);
    };
    each(std::make_integer_sequence<int, kRows>());
  };
  const auto advance = [&](int64_t k) __attribute__((always_inline)) {
    b += k * kColumns;
    if constexpr (kAlongRows<kOrder>)
      rows.advance(k);
    else
      a += k * kRows;
  };
  const float *operand = next.operand, *unpacked = next.unpacked;
  float* packed = next.packed;
  const int64_t step = next.step, unpacked_step = next.unpacked_step, next_row = next.c_row;
  int64_t left = depth, unpacked_rows = next.unpacked_rows;
  for (int64_t i = 0; left >= 4; ++i) {
    const float* lines = next.lines(i);
    const int64_t line_step = lines ? next_row : 0;
    if (!lines) lines = c;
    if (kAlongRows<kOrder>) operand = next.operand + 16 * i;
    int64_t fours = left / 4 < kRows ? left / 4 : kRows;
    left -= 4 * fours;
    do {
      __builtin_prefetch(lines, 1);
      lines += line_step;
      add.template operator()<0>(), add.template operator()<1>();
      __builtin_prefetch(operand, 0, 2);
      operand += step;
      add.template operator()<2>();
      if constexpr (kOrder == PanelOrder::packed)
        if (unpacked_rows > 0) {
          __builtin_memcpy(packed, unpacked, kRows * sizeof(float));
          unpacked += unpacked_step, packed += kRows, --unpacked_rows;
        }
      add.template operator()<3>();
      advance(4);
    } while (--fours > 0);
  }
  for (; left > 0; --left, advance(1)) add.template operator()<0>();
  store_sums(sum, c, c_row, kColumns, end);
}

// Returns the tile epilogue of a product for the block of the depth that begins at `k`.
HM_INLINE Ending ending_of(const Product& p, void* const* buffers, int64_t k) {
  const float* c = static_cast<const float*>(buffers[p.c]);
  if (p.descends)
    return {k > 0 ? c : static_cast<const float*>(buffers[p.old]), -*static_cast<const float*>(buffers[p.rate])};
  return {p.accumulate || k > 0 ? c : nullptr, 1};
}

// Packs one row panel of A. Missing rows of the last panel are not written, since their sums are unused.
HM_INLINE void pack_rows(const float* a, int64_t a_column, int64_t used, int64_t depth, float* to) {
  for (int64_t k = 0; k < depth; ++k, a += a_column, to += kRows) {
    if (used == kRows)
      __builtin_memcpy(to, a, kRows * sizeof(float));
    else
      for (int64_t r = 0; r < used; ++r) to[r] = a[r];
  }
}

// Packs column panels of a row-major B, `panel` floats apart.
HM_INLINE void pack_columns(const float* b, int64_t b_row, int64_t columns, int64_t depth, float* to, int64_t panel) {
  constexpr int64_t kAhead = 16;  // rows: the processor does not fetch short pieces of distant rows itself
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = 0; j < columns; j += kWidth) {
      const float* from = b + k * b_row + j;
      __builtin_prefetch(from + kAhead * b_row);
      store(to + j / kColumns * panel + k * kColumns + j % kColumns,
            columns - j >= kWidth ? load(from) : load_part(from, columns - j));
    }
}
HM_INLINE void pack_transposed(const float* b, int64_t b_column, int64_t columns, int64_t depth, float* to,
                               int64_t panel) {
  constexpr int64_t kDepth = 64;  // along k: the piece of a panel fits the L1 cache
  for (int64_t j = 0; j < columns; j += kColumns)
    for (int64_t k = 0; k < depth; k += kDepth) {
      // Of the next piece: along the rows, or of the next panel.
      const bool is_last = k + kDepth >= depth;
      const float* const next = b + (is_last ? (j + kColumns) * b_column : j * b_column + k + kDepth);
      for (int64_t i = 0; i < kColumns; ++i)
        for (int64_t line = 0; line < kDepth; line += 16) __builtin_prefetch(next + i * b_column + line, 0, 2);
      transpose(b + j * b_column + k, b_column, to + j / kColumns * panel + k * kColumns, kColumns,
                columns - j < kColumns ? columns - j : kColumns, depth - k < kDepth ? depth - k : kDepth);
    }
}
HM_INLINE void pack_b(const Product& p, const float* b, int64_t columns, int64_t depth, float* to, int64_t panel) {
  if (p.b_column == 1)
    pack_columns(b, p.b_row, columns, depth, to, panel);
  else
    pack_transposed(b, p.b_column, columns, depth, to, panel);
}

// Multiplies rows of A and packed columns of B over a block of the depth: panels of B outside, row panels inside.
template <PanelOrder kOrder>
HM_INLINE void multiply(const float* a, int64_t a_row, int64_t panel_step, int64_t rows, const float* b,
                        int64_t b_panel, int64_t columns, int64_t depth, float* to, int64_t c_row, const Ending& end) {
  // Rows a multiple of a page apart map to one set of the L1 cache, which has eight ways.
  const int64_t step = kOrder == PanelOrder::by_rows && a_row % 1024 == 0 && kRows > 6 ? 6 : kRows;
  for (int64_t jj = 0; jj < columns; jj += kColumns)
    for (int64_t ii = 0; ii < rows; ii += step) {
      // Prefetches the next rows, or the first rows for the next columns. One line per k-loop step over 16 rows stays
      // within the block's depth; columns beyond it may belong to other threads, which write these lines.
      const float* next = a + (ii + step < rows ? ii + step : 0) * panel_step;
      const Ahead ahead = kOrder == PanelOrder::by_rows ? Ahead{next, a_row, 16} : Ahead{next, 16, depth};
      tile_for<kOrder>(rows - ii < step ? rows - ii : step, columns - jj)(
          a + ii * panel_step, a_row, b + jj / kColumns * b_panel, 0, depth, to + ii * c_row + jj, c_row, columns - jj,
          end.at(ii * c_row + jj), ahead);
    }
}

// Likewise with row panels outside and panels of B inside, for many rows. Rows a multiple of a page apart are copied,
// since they map to one set of the L1 cache.
template <PanelOrder kOrder>
HM_INLINE void multiply_rows(const float* a, int64_t a_row, int64_t panel_step, int64_t rows, const float* b,
                             int64_t b_panel, int64_t columns, int64_t depth, float* to, int64_t c_row,
                             const Ending& end, const Beside& beside) {
  constexpr int64_t kCopyRow = kRowsDepth + 16;
  alignas(64) float copy[kRows * kCopyRow];
  const bool copies = kOrder == PanelOrder::by_rows && kRows > 6 && a_row % 1024 == 0;
  for (int64_t ii = 0; ii < rows; ii += kRows) {
    const float* own = a + ii * panel_step;
    if (copies) {
      for (int64_t r = 0; r < kRows && r < rows - ii; ++r)
        __builtin_memcpy(copy + r * kCopyRow, own + r * a_row, static_cast<size_t>(depth) * sizeof(float));
      own = copy;
    }
    const int64_t own_row = copies ? kCopyRow : a_row;
    for (int64_t jj = 0; jj < columns; jj += kColumns) {
      const int64_t at = ii * c_row + jj;
      const float* const panel = b + jj / kColumns * b_panel;
      if (rows - ii < kRows || columns - jj < kColumns) {
        tile_for<kOrder>(rows - ii, columns - jj)(own, own_row, panel, 0, depth, to + at, c_row, columns - jj,
                                                  end.at(at, jj), Ahead{own, 16, depth});
        continue;
      }
      // The tiles of a row panel share the prefetch of the next row panel.
      const bool is_last = jj + kColumns >= columns, below = ii + kRows < rows;
      const float* next = below ? a + (ii + kRows) * panel_step : a;
      next += depth * jj / columns / 16 * 16 * (kAlongRows<kOrder> ? 1 : kRows);
      const float* const c = to + (is_last ? below ? at - jj + kRows * c_row : at : at + kColumns);
      const bool along = kAlongRows<kOrder>;
      NextTile ahead{c, next, c_row, along ? a_row : 16};
      ahead.beside = beside.at, ahead.beside_at = at, ahead.besides = beside.count;
      row_tile<kOrder>(own, own_row, panel, depth, to + at, c_row, end.at(at, jj), ahead);
    }
  }
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
