// Products of x, quantised to q8_0, and block-quantised integer weights. Byte products are summed exactly within a run
// of elements with one scale, and a lane adds the runs of one result in order. The bits of a result therefore depend
// neither on the number of rows nor on the instructions used.
#pragma once

#include <harmonics/abi.h>

#include "eight_bits.hpp"
#include "integer_dots.hpp"
#include "integer_few.hpp"
#include "integer_products.hpp"
#include "integer_types.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// ---- rows of x times kTiles panels

template <typename Dot, int kRun, int kRows, int kTiles>
HM_INLINE void integer_tile(const IntegerPanel* panels, const IntegerChunk* x, float* sums, bool has_least) {
  vf total[kRows][kTiles];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int t = 0; t < kTiles; ++t) total[r][t] = load(sums + (r * kTiles + t) * kWidth);
#pragma GCC unroll 1
  for (int64_t run = 0; run < kIntegerDepth / kRun; ++run) {
    vi sum[kRows][kTiles];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int t = 0; t < kTiles; ++t) sum[r][t] = Dot::kSigned ? vi{} : splat_int(x[r].starts[run]);
#pragma GCC unroll 8
    for (int k = 0; k < kRun / 4; k += Dot::kSums) {
      vi pairs[kRows][kTiles] = {};
#pragma GCC unroll 8
      for (int i = 0; i < Dot::kSums; ++i) {
        const int64_t at = run * (kRun / 4) + k + i;
        vi w[kTiles], size[kTiles];
#pragma GCC unroll 2
        for (int t = 0; t < kTiles; ++t) {
          w[t] = load_int(panels[t].indices[at]);
          if constexpr (Dot::kSigned) w[t] ^= bytes_of(128);
          size[t] = Dot::prepared(w[t]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          int32_t four;
          std::memcpy(&four, x[r].steps + 4 * at, 4);
          const vi steps = splat_int(four);
#pragma GCC unroll 2
          for (int t = 0; t < kTiles; ++t) {
            vi& to = Dot::kLanes ? sum[r][t] : pairs[r][t];
            to = Dot::add(to, w[t], size[t], steps);
          }
        }
      }
      if constexpr (!Dot::kLanes) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
          for (int t = 0; t < kTiles; ++t) sum[r][t] += lanes_of_pairs(pairs[r][t]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const vf scale = splat(x[r].scales[run]);
#pragma GCC unroll 2
      for (int t = 0; t < kTiles; ++t)
        total[r][t] = fma(floats(sum[r][t]), load(panels[t].steps[run]) * scale, total[r][t]);
    }
    if (has_least) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
        for (int t = 0; t < kTiles; ++t)
          total[r][t] = fma(load(panels[t].leasts[run]), splat(x[r].sums[run]), total[r][t]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int t = 0; t < kTiles; ++t) store(sums + (r * kTiles + t) * kWidth, total[r][t]);
}

// Multiplies `rows` rows, kRows at a time, then the rest in smaller tiles.
template <typename Dot, int kRun, int kTiles, int kRows>
void integer_rows(const IntegerPanel* panels, const IntegerChunk* x, float* sums, int64_t rows, bool has_least) {
  int64_t i = 0;
  for (; i + kRows <= rows; i += kRows)
    integer_tile<Dot, kRun, kRows, kTiles>(panels, x + i, sums + i * kTiles * kWidth, has_least);
  if constexpr (kRows > 1)
    if (i < rows)
      integer_rows<Dot, kRun, kTiles, kRows / 2>(panels, x + i, sums + i * kTiles * kWidth, rows - i, has_least);
}

// Multiplies at most kRows rows. The caller divides rows evenly, so most tiles are full.
template <typename Dot, int kRun, int kTiles, int kRows>
void integer_piece(const IntegerPanel* panels, const IntegerChunk* x, float* sums, int64_t rows, bool has_least) {
  if constexpr (kRows > 1)
    if (rows < kRows) return integer_piece<Dot, kRun, kTiles, kRows - 1>(panels, x, sums, rows, has_least);
  integer_tile<Dot, kRun, kRows, kTiles>(panels, x, sums, has_least);
}

// ---- types

using MultiplyPanels = void (*)(const IntegerPanel* panels, const IntegerChunk* x, float* sums, int64_t rows,
                                bool has_least);

constexpr int64_t kFewRows = 8;  // up to here one panel at a time, which reads fewer rows of the weight in parallel
constexpr int kTilesOfMany = 2;
constexpr int kTileRows = kWidth < 16 ? 2 : 6;  // the accumulators fit the registers

template <typename W>
void quantise_chunk(const float* x, int64_t blocks, IntegerChunk& to) {
  constexpr int kRuns = 32 / W::kRun;  // runs per block
  if (blocks < 8) std::memset(&to, 0, sizeof to);
  for (int b = 0; b < blocks; ++b) {
    alignas(32) int8_t steps[kEightBlock];
    const uint16_t half = eight_bits_of(x + kEightBlock * b, steps);
    const float scale = load_f16_part(&half, 1)[0];
    int32_t sums[2] = {sum_of_steps(steps), sum_of_steps(steps + 16)};
    if constexpr (kRuns == 1) sums[0] += sums[1];
    for (int i = 0; i < kRuns; ++i) {
      const int at = W::kTurned ? place_of(kRuns * b + i) : kRuns * b + i;
      std::memcpy(to.steps + at * W::kRun, steps + i * W::kRun, W::kRun);
      to.scales[at] = scale;
      to.starts[at] = -W::kOffset * sums[i];
      to.sums[at] = scale * static_cast<float>(sums[i]);
    }
  }
}

struct IntegerType {
  // Unpacks the chunk at `rows` and advances the pointers. `blocks`: number of blocks of 32 in the chunk.
  void (*unpack)(const char** rows, int64_t blocks, IntegerPanel& to);
  void (*unpack_packed)(const char* chunk, IntegerPanel& to);
  // Packs the chunk at `rows` and advances the pointers.
  void (*pack)(const char** rows, int64_t blocks, char* to);
  MultiplyPanels few, many;
  void (*quantise)(const float* x, int64_t blocks, IntegerChunk& to);
  int64_t chunk_bytes, packed_bytes;
  bool has_least;
};

// Calls `then` with the chunk at `rows`, padded to a whole chunk, and advances the pointers.
template <typename W, typename Then>
HM_INLINE void with_chunk(const char** rows, int64_t blocks, Then then) {
  LastChunk last;
  const char* at[kWidth];
  for (int i = 0; i < kWidth; ++i) {
    at[i] = rows[i];
    rows[i] += W::kChunkBytes;
  }
  last.complete<W>(at, blocks);
  then(static_cast<const char* const*>(at));
}

template <typename W>
void unpack_chunk(const char** rows, int64_t blocks, IntegerPanel& to) {
  PanelOfRuns<W::kRun> panel{to};
  with_chunk<W>(
      rows, blocks, [&](const char* const* at) __attribute__((always_inline)) { W::chunk(at, panel); });
}
template <typename W>
void unpack_packed_chunk(const char* chunk, IntegerPanel& to) {
  PanelOfRuns<W::kRun> panel{to};
  W::chunk(PackedRows{chunk}, panel);
}
template <typename W>
void pack_chunk(const char** rows, int64_t blocks, char* to) {
  with_chunk<W>(rows, blocks, [&](const char* const* at) { W::pack(at, to); });
}

template <typename Dot, typename W>
IntegerType integer_type_of() {
  constexpr int kFew = kWidth < 16 ? 4 : 8;
  return {unpack_chunk<W>,
          unpack_packed_chunk<W>,
          pack_chunk<W>,
          integer_rows<Dot, W::kRun, 1, kFew>,
          integer_piece<Dot, W::kRun, kTilesOfMany, kTileRows>,
          quantise_chunk<W>,
          W::kChunkBytes,
          W::kPackedBytes,
          W::kLeast};
}

IntegerType integer_type(uint32_t dtype, bool vnni) {
  IntegerType found;
  with_integer_type(dtype, [&](auto type) {
    using W = decltype(type);
#if defined(__AVX2__)
    if (vnni) {
      found = integer_type_of<FourAtOnce, W>();
      return;
    }
#else
    (void)vnni;
#endif
    found = integer_type_of<PairsOf<W>, W>();
  });
  return found;
}

// ---- phases

int64_t blocks_of_chunk(int64_t depth, int64_t chunk) {
  const int64_t left = depth - chunk * kIntegerDepth;
  return (left < kIntegerDepth ? left : kIntegerDepth) / 32;
}

// Sets the addresses of kWidth rows of the weight from `row`; the last row pads the group.
HM_INLINE void rows_from(const IntegerContext& c, const char* w, int64_t row, const char** to) {
  const int64_t last = c.product.n - 1;
  for (int64_t i = 0; i < kWidth; ++i) to[i] = w + (row + i < last ? row + i : last) * c.row_bytes;
}

// Multiplies all rows of a and rows `columns` of b.
void multiply_few_rows(const IntegerContext& c, MultiplyFew multiply, const char* w, const IntegerChunk* x, float* y,
                       Range columns) {
  const Product& p = c.product;
  const int64_t chunks = (p.k + kIntegerDepth - 1) / kIntegerDepth;
  FewIntegerRows work;
  work.x = x;
  work.x_rows = c.x_rows;
  work.chunks = chunks;
  work.last_blocks = blocks_of_chunk(p.k, chunks - 1);
  work.row_bytes = c.row_bytes;
  work.fetches = c.fetches;
  work.packed = nullptr;
  alignas(64) float sums[8 * kWidth];
  for (int64_t j = columns.begin; j < columns.end; j += kWidth) {
    if (c.packed_chunk) {
      work.packed = w + j / kWidth * chunks * c.packed_chunk;
    } else {
      rows_from(c, w, j, work.rows);
      work.next = j + kWidth < columns.end ? w + (j + kWidth) * c.row_bytes : nullptr;
    }
    multiply(work, sums);
    for (int64_t r = 0; r < p.m; ++r) store_some(y + r * p.n + j, load(sums + r * kWidth), lanes_at(j, columns.end));
  }
}

// Prefetches the next chunk, a few cache lines at a time during the products; the hardware prefetcher misses this
// pattern.
struct BytesAhead {
  const char* at[kTilesOfMany];
  int64_t bytes;  // per chunk
  int64_t next = 0;
  HM_INLINE void fetch(int tiles, int64_t lines) {
    for (; lines > 0 && next < bytes; --lines, next += 64)
      for (int t = 0; t < tiles; ++t) _mm_prefetch(at[t] + next, _MM_HINT_T1);
  }
};

// Multiplies `rows` of a and rows `columns` of b.
void multiply_chunks(const IntegerContext& c, const IntegerType& type, const char* w, const IntegerChunk* x, float* y,
                     Range rows, Range columns) {
  const Product& p = c.product;
  const int64_t chunks = (p.k + kIntegerDepth - 1) / kIntegerDepth;
  IntegerPanel panels[kTilesOfMany];
  alignas(64) float sums[kIntegerRows * kTilesOfMany * kWidth];
  for (int64_t i = rows.begin; i < rows.end; i += kIntegerRows) {
    const int64_t m = rows.end - i < kIntegerRows ? rows.end - i : kIntegerRows;
    const int tiles = m > kFewRows ? kTilesOfMany : 1;
    const int64_t width = tiles * kWidth, together = tiles > 1 ? kTileRows : kFewRows,
                  pieces = (m + together - 1) / together;
    for (int64_t j = columns.begin; j < columns.end; j += width) {
      const char *at[kTilesOfMany * kWidth], *next[kTilesOfMany * kWidth], *packed[kTilesOfMany];
      const int64_t last = (p.n - 1) / kWidth;
      for (int t = 0; t < tiles; ++t) {
        const int64_t group = j / kWidth + t < last ? j / kWidth + t : last;
        packed[t] = w + group * chunks * c.packed_chunk;
        if (c.packed_chunk) continue;
        rows_from(c, w, j + t * kWidth, at + t * kWidth);
        rows_from(c, w, j + width + t * kWidth, next + t * kWidth);
      }
      std::memset(sums, 0, static_cast<size_t>(m * width) * sizeof(float));
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const int64_t blocks = blocks_of_chunk(p.k, chunk);
        for (int64_t k = 0; k < width && !c.packed_chunk; ++k) {
          // The chunk that follows; a row is too short for the hardware prefetcher.
          const char* soon = chunk + 1 < chunks ? at[k] + type.chunk_bytes : next[k];
          for (int64_t byte = 0; byte < type.chunk_bytes; byte += 64) _mm_prefetch(soon + byte, _MM_HINT_T0);
        }
        for (int t = 0; t < tiles; ++t) {
          if (c.packed_chunk)
            type.unpack_packed(packed[t] + chunk * c.packed_chunk, panels[t]);
          else
            type.unpack(at + t * kWidth, blocks, panels[t]);
        }
        // Packed weight: the next chunk, or the first chunk of the following tiles.
        BytesAhead ahead{{}, c.packed_chunk};
        for (int t = 0; t < tiles; ++t)
          ahead.at[t] = packed[t] + (chunk + 1 + (chunk + 1 < chunks ? 0 : (tiles - 1) * chunks)) * c.packed_chunk;
        const int64_t lines = c.packed_chunk / 64 / pieces + 1;
        for (int64_t piece = 0; piece < pieces; ++piece) {
          const int64_t r = m * piece / pieces, end = m * (piece + 1) / pieces;
          ahead.fetch(tiles, lines);
          (tiles > 1 ? type.many : type.few)(panels, x + chunk * c.x_rows + i + r, sums + r * width, end - r,
                                             type.has_least);
        }
      }
      for (int64_t r = 0; r < m; ++r)
        for (int t = 0; t < tiles; ++t) {
          const int64_t first = j + t * kWidth;
          if (first < columns.end)
            store_some(y + (i + r) * p.n + first, load(sums + r * width + t * kWidth), lanes_at(first, columns.end));
        }
    }
  }
}

}  // namespace

int64_t packed_integer_chunk(uint32_t dtype) { return integer_type(dtype, false).packed_bytes; }

void pack_integers(const void* context, const void* b, uint64_t piece, void* packed) {
  const auto& c = *static_cast<const IntegerContext*>(context);
  const Product& p = c.product;
  const IntegerType type = integer_type(c.dtype, false);
  const int64_t chunks = (p.k + kIntegerDepth - 1) / kIntegerDepth, rows_of_piece = kPackedGroups * kWidth,
                first = static_cast<int64_t>(piece) * rows_of_piece,
                end = first + rows_of_piece < p.n ? first + rows_of_piece : p.n;
  auto* to = static_cast<char*>(packed);
  for (int64_t j = first; j < end; j += kWidth) {
    const char* rows[kWidth];
    rows_from(c, static_cast<const char*>(b), j, rows);
    for (int64_t chunk = 0; chunk < chunks; ++chunk, to += c.packed_chunk)
      type.pack(rows, blocks_of_chunk(p.k, chunk), to);
  }
}

void integer_linear(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const IntegerContext*>(context);
  const Product& p = c.product;
  const IntegerType type = integer_type(c.dtype, c.vnni);
  auto* chunks = static_cast<IntegerChunk*>(buffers[p.c + 1]);
  if (phase == 0) {
    const float* x = static_cast<const float*>(buffers[p.a]);
    const int64_t all = (p.k + kIntegerDepth - 1) / kIntegerDepth;
    const Range items = share(all * c.x_rows, c.quantise_parts, part);
    for (int64_t i = items.begin; i < items.end; ++i) {
      const int64_t chunk = i / c.x_rows, row = i % c.x_rows < p.m ? i % c.x_rows : p.m - 1;
      type.quantise(x + row * p.k + chunk * kIntegerDepth, blocks_of_chunk(p.k, chunk), chunks[i]);
    }
    return;
  }
  const uint32_t row_part = part / c.column_parts, column_part = part % c.column_parts;
  const Range rows = {slice_begin(p.m, kIntegerRows, c.row_parts, row_part),
                      slice_begin(p.m, kIntegerRows, c.row_parts, row_part + 1)},
              columns = {slice_begin(p.n, kIntegerColumnGranule, c.column_parts, column_part),
                         slice_begin(p.n, kIntegerColumnGranule, c.column_parts, column_part + 1)};
  const char* w = static_cast<const char*>(buffers[c.packed_chunk ? p.c + 2 : p.b]);
  float* y = static_cast<float*>(buffers[p.c]);
  if (const MultiplyFew few = few_integer_rows_of(c.dtype, c.vnni, c.x_rows, c.packed_chunk != 0))
    multiply_few_rows(c, few, w, chunks, y, columns);
  else
    multiply_chunks(c, type, w, chunks, y, rows, columns);
  end_product(p, buffers, rows.begin, rows.end, columns.begin, columns.end);
}

}  // namespace harmonics::cpu::HM_ISA
