// Optimizer steps of an affine map's weight for a batch. Each tile of the gradient is used while it is in the L1 cache;
// the whole gradient is never stored.
#include "../family.hpp"

#include "../optimizer.hpp"
#include "../rounded_product.hpp"
#include "../sparse_product.hpp"

namespace harmonics::cpu {
namespace {

// The step of a weight for a batch: the update is the epilogue of each tile of the gradient a^T b. Phases: pack b;
// multiply and update; or, with few non-zeros in a, sparse rows of the gradient and their update.
struct ProductUpdateContext {
  OptimizerContext rule;
  UpdateKind kind;
  int64_t rows, columns, depth;  // depth: samples
  uint32_t pack_parts, parts;
  uint32_t packed;  // buffer of the packed b
  // Not null: operands are rounded, and the buffer begins with the packed a, of `packed_a` words.
  const RoundedRoutines* rounding = nullptr;
  int64_t packed_a = 0;
  // Words of a strip, and of a block of the depth, of both.
  int64_t a_strip = 0, b_strip = 0, a_block = 0, b_block = 0;
  // Of phase 2: the non-zeros of a, in the buffer after the packed b, and the rows of a part's block in `packed`.
  const SparseContext* marks = nullptr;
  int64_t block_rows = 0;
};
// A larger depth in f32 takes several blocks, whose partial sums would have to be stored.
constexpr int64_t kMostUpdateDepth = 256;
constexpr int64_t kMostTileRows = 48;  // rows of a tile of a gradient with rounded operands

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "coded_adam.hpp"
#include "packed.hpp"
#include "update_rules.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr int64_t kBlockColumns = 256;

// Prefetches weights and moments of a block of columns while its gradient is computed. Each tile prefetches a share of
// the block's lines: one line per array and k-loop step, because a burst would delay the loads of the product. Along
// the rows, which lets the hardware prefetcher run ahead.
template <int kArrays>
struct BlockAhead {
  static constexpr bool kPlain = true;
  const float* at[kArrays];
  // left, in_row: remaining lines of the tile and of the row. row: lines per row. jump: floats to the next row.
  int64_t left, in_row, row, jump;
  // Begins the share of tile `tile` of `tiles`.
  HM_INLINE void begin(int64_t n, int64_t rows, int64_t columns, int64_t tile, int64_t tiles) {
    row = (columns + 15) / 16, jump = n - row * 16;
    const int64_t all = rows * row, each = (all + tiles - 1) / tiles, from = tile * each, r = from / row,
                  column = from - r * row;
    left = from + each < all ? each : all - from;
    in_row = row - column;
    for (const float*& p : at) p += r * n + column * 16;
  }
  template <PanelOrder>
  HM_INLINE void fetch() {
    if (left <= 0) return;
    for (const float*& p : at) {
      __builtin_prefetch(p, 0, 2);
      p += 16;
    }
    --left;
    if (--in_row > 0) return;
    in_row = row;
    for (const float*& p : at) p += jump;
  }
};

#if defined(__AVX512F__)
// Prefetches nothing.
struct NoFetches {
  static constexpr bool kPlain = true;
  template <PanelOrder>
  HM_INLINE void fetch() {}
};

// Steps of a finished block of the gradient, row after row, a vector at a time.
template <typename Types>
struct BlockSteps {
  using Rule = typename Types::Rule;
  using Moment = typename Types::Moment;
  static constexpr int64_t kFarRows = 4;  // fetched from memory; the next row, into the L1 cache
  const Rule* rule;
  const Elements<Rule, Moment>* all;
  int64_t n;                               // columns of w
  const float* g = nullptr;                // the gradient, without gaps
  int64_t at = 0, left = 0;                // place in w of the next vector; vectors left
  int64_t vectors_of_row = 0, in_row = 0;  // in_row: left in the row

  // Rows of the next panel of a, of which one is fetched with each step.
  const float* unpacked = nullptr;
  int64_t unpacked_step = 0, unpacked_rows = 0;

  HM_INLINE void begin(const float* gradient, int64_t place, int64_t rows, int64_t columns) {
    g = gradient, at = place, vectors_of_row = in_row = columns / kWidth, left = rows * vectors_of_row;
  }
  HM_INLINE void one() {
    fetch<3>(at + n), fetch<2>(at + kFarRows * n);
    if (--unpacked_rows >= 0) __builtin_prefetch(unpacked, 0, 2), unpacked += unpacked_step;
    all->step(*rule, at, kWidth, load(all->w + at), load(g));
    g += kWidth, at += kWidth, --left;
    if (--in_row == 0) in_row = vectors_of_row, at += n - vectors_of_row * kWidth;
  }

 private:
  template <int kLevel>
  HM_INLINE void fetch(int64_t place) const {
    __builtin_prefetch(all->w + place, 0, kLevel);
    for (int k = 0; k < Rule::kMoments; ++k)
      if (sizeof(Moment) == sizeof(float) || in_row % 2 == 0) __builtin_prefetch(all->old[k] + place, 0, kLevel);
  }
};

// Micro-kernel for a whole tile of packed operands, with `count` steps between its multiply-adds. Elements of A are
// memory operands: on Zen 4 a load that broadcasts to a register is a shuffle, which may take a unit that multiplies.
template <typename Types>
[[gnu::noinline]] void tile_with_steps(const float* a, const float* b, int64_t depth, float* c, int64_t c_row,
                                       BlockSteps<Types>& block, int64_t count) {
  BlockSteps<Types> steps = block;  // in registers
  vf sum[kRows][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = vf{};
  const auto add = [&](int64_t terms) __attribute__((always_inline)) {
    for (; terms > 0; --terms, a += kRows, b += kColumns) {
      vf row[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) row[v] = load(b + v * kWidth);
#pragma GCC unroll 12
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v)
          __asm__("vfmadd231ps %1%{1to16%}, %2, %0" : "+v"(sum[i][v]) : "m"(a[i]), "v"(row[v]));
    }
  };
  const int64_t every = depth > count && count > 0 ? depth / count : 1;
  for (; count > 0 && depth >= every; --count, depth -= every) {
    add(every);
    steps.one();
  }
  add(depth);
  store_sums(sum, c, c_row, kColumns, Ending{nullptr, 1});
  for (; count > 0; --count) steps.one();  // fewer terms than steps
  block = steps;
}

// w, a, b, moments..., lr, [step] -> w, moments... The steps of a block run between the multiply-adds of the next one,
// so that the divider and memory work beside the units that multiply.
template <typename Types>
void update_tiles_between(const ProductUpdateContext& c, void* const* buffers, uint32_t part) {
  using Rule = typename Types::Rule;
  using Moment = typename Types::Moment;
  constexpr int kLr = 3 + Rule::kMoments;
  constexpr int64_t kMostTiles = 4;  // of a block: two blocks and a panel of a stay in the L1 cache
  const int kOut = kLr + (c.rule.counts_steps ? 2 : 1);
  const FlushDenormals flush;  // also of the operands of the gradient
  const Rule rule(c.rule, *static_cast<const float*>(buffers[kLr]), buffers[kLr + 1]);
  const RandomBits random(step_number(c.rule, buffers[kLr + 1]));
  const Elements<Rule, Moment> all = elements_of<Rule, Moment>(buffers, 3, kOut, random);
  const float *a = static_cast<const float*>(buffers[1]), *b = static_cast<const float*>(buffers[c.packed]);
  const int64_t n = c.columns, tiles = n / kColumns, blocks = (tiles + kMostTiles - 1) / kMostTiles;
  alignas(64) float panel[kRows * kMostUpdateDepth], block[2][kRows * kMostTiles * kColumns], rest[kRows * kColumns];
  BlockSteps<Types> steps{&rule, &all, n};
  int turn = 0;
  const Range panels = share((c.rows + kRows - 1) / kRows, c.parts, part);
  for (int64_t i = panels.begin * kRows; i < panels.end * kRows && i < c.rows; i += kRows) {
    const int64_t rows = c.rows - i < kRows ? c.rows - i : kRows, whole = rows == kRows ? tiles * kColumns : 0;
    pack_rows(a + i, c.rows, rows, c.depth, panel);
    // The line in which a row of the panel ends: it begins in a line of this panel.
    const int64_t last = i + 2 * kRows - 1 < c.rows ? i + 2 * kRows - 1 : c.rows - 1;
    steps.unpacked = a + last, steps.unpacked_step = c.rows, steps.unpacked_rows = c.depth;
    for (int64_t k = 0; whole > 0 && k < blocks; ++k) {
      const int64_t first = tiles * k / blocks, end = tiles * (k + 1) / blocks, columns = (end - first) * kColumns;
      for (int64_t t = first; t < end; ++t)
        tile_with_steps(panel, b + t * kColumns * c.depth, c.depth, block[turn] + (t - first) * kColumns, columns,
                        steps, (steps.left + end - t - 1) / (end - t));
      steps.begin(block[turn], i * n + first * kColumns, kRows, columns);
      turn ^= 1;
    }
    // What is not a whole tile is updated at once.
    for (int64_t j = whole; j < n; j += kColumns) {
      const int64_t columns = n - j < kColumns ? n - j : kColumns;
      tile_for<PanelOrder::packed, NoFetches>(rows, columns)(panel, 0, b + j * c.depth, 0, c.depth, rest, kColumns,
                                                             columns, Ending{nullptr, 1}, NoFetches{});
      for (int64_t r = 0; r < rows; ++r)
        from_place(all, (i + r) * n + j, rest + r * kColumns).template steps<false>(rule, 0, columns);
    }
  }
  while (steps.left > 0) steps.one();
}
#endif

// w, a, b, moments..., lr, [step] -> w, moments...
template <typename Types>
void update_tiles(const ProductUpdateContext& c, void* const* buffers, uint32_t part) {
  using Rule = typename Types::Rule;
  using Moment = typename Types::Moment;
  constexpr int kMoments = Rule::kMoments, kLr = 3 + kMoments;
  // Prefetches moments while the gradient is computed, and the weights of the next block while this one is updated, so
  // that memory is never idle. bf16 moments have half the size and are left to the hardware prefetcher.
  constexpr bool kFetchesMoments = sizeof(Moment) == sizeof(float) && kMoments > 0;
  constexpr int kFetched = kFetchesMoments ? kMoments : 1;
  const int kOut = kLr + (c.rule.counts_steps ? 2 : 1);
  const Rule rule(c.rule, *static_cast<const float*>(buffers[kLr]), buffers[kLr + 1]);
  const RandomBits random(step_number(c.rule, buffers[kLr + 1]));
  const Elements<Rule, Moment> all = elements_of<Rule, Moment>(buffers, 3, kOut, random);
  const float *a = static_cast<const float*>(buffers[1]), *b = static_cast<const float*>(buffers[c.packed]);
  const int64_t n = c.columns;
  alignas(64) float panel[kRows * kMostUpdateDepth], block[kRows * kBlockColumns];
  const Range panels = share((c.rows + kRows - 1) / kRows, c.parts, part);
  for (int64_t i = panels.begin * kRows; i < panels.end * kRows && i < c.rows; i += kRows) {
    const int64_t rows = c.rows - i < kRows ? c.rows - i : kRows;
    pack_rows(a + i, c.rows, rows, c.depth, panel);
    for (int64_t j = 0; j < n; j += kBlockColumns) {
      const int64_t columns = n - j < kBlockColumns ? n - j : kBlockColumns, at = i * n + j;
      for (int64_t jj = 0; jj < columns; jj += kColumns) {
        const int64_t some = columns - jj < kColumns ? columns - jj : kColumns;
        BlockAhead<kFetched> ahead{};
        if constexpr (kFetchesMoments)
          for (int k = 0; k < kMoments; ++k) ahead.at[k] = all.old[k] + at;
        else
          ahead.at[0] = all.w + at;
        ahead.begin(n, rows, columns, jj / kColumns, (columns + kColumns - 1) / kColumns);
        tile_for<PanelOrder::packed, BlockAhead<kFetched>>(rows, some)(
            panel, 0, b + (j + jj) * c.depth, 0, c.depth, block + jj, kBlockColumns, some, Ending{nullptr, 1}, ahead);
      }
      const FlushDenormals flush;
      const int64_t to_next = j + kBlockColumns < n ? kBlockColumns : kRows * n - j;
      for (int64_t r = 0; r < rows; ++r) {
        const auto row = from_place(all, at + r * n, block + r * kBlockColumns);
        row.steps(
            rule, 0, columns, [&](int64_t x) __attribute__((always_inline)) {
              if constexpr (kFetchesMoments) __builtin_prefetch(row.w + x + to_next, 0, 2);
            });
      }
    }
  }
}

template <typename Types>
HM_INLINE void update_dense_tiles(const ProductUpdateContext& c, void* const* buffers, uint32_t part) {
#if defined(__AVX512F__)
  if (c.rule.between) return update_tiles_between<Types>(c, buffers, part);
#endif
  update_tiles<Types>(c, buffers, part);
}

// With coded moments: a tile has the rows of a block of scales, and is multiplied in strips of rows.
template <typename Types>
void update_coded_tiles(const ProductUpdateContext& c, void* const* buffers, uint32_t part) {
  using Rule = typename Types::Rule;
  constexpr int kLr = 3 + Types::kTensors, kStrip = kRows < 8 ? kRows : 8, kStrips = (kBlock + kStrip - 1) / kStrip;
  const int kOut = kLr + (c.rule.counts_steps ? 2 : 1);
  const Rule rule(c.rule, *static_cast<const float*>(buffers[kLr]), buffers[kLr + 1]);
  const int64_t n = c.columns;
  const CodedWeights weights = coded_weights<Rule>(buffers, 3, kOut, n, step_number(c.rule, buffers[kLr + 1]));
  const float *a = static_cast<const float*>(buffers[1]), *b = static_cast<const float*>(buffers[c.packed]);
  alignas(64) float panels[kStrips][kRows * kMostUpdateDepth], block[kBlock * kBlockColumns];
  const auto used = [](int64_t rows, int64_t strip) {
    const int64_t left = rows - strip * kStrip;
    return left < kStrip ? left : int64_t{kStrip};
  };
  const Range blocks = share((c.rows + kBlock - 1) / kBlock, c.parts, part);
  for (int64_t i = blocks.begin * kBlock; i < blocks.end * kBlock && i < c.rows; i += kBlock) {
    const int64_t rows = c.rows - i < kBlock ? c.rows - i : kBlock;
    for (int64_t s = 0; s * kStrip < rows; ++s)
      pack_rows(a + i + s * kStrip, c.rows, used(rows, s), c.depth, panels[s]);
    for (int64_t j = 0; j < n; j += kBlockColumns) {
      const int64_t columns = n - j < kBlockColumns ? n - j : kBlockColumns;
      for (int64_t jj = 0; jj < columns; jj += kColumns) {
        const int64_t some = columns - jj < kColumns ? columns - jj : kColumns;
        for (int64_t s = 0; s * kStrip < rows; ++s) {
          const int64_t strips = (rows + kStrip - 1) / kStrip;
          BlockAhead<1> ahead{{weights.w + i * n + j}, 0, 0, 0, 0};
          ahead.begin(n, rows, columns, jj / kColumns * strips + s, (columns + kColumns - 1) / kColumns * strips);
          tile_for<PanelOrder::packed, BlockAhead<1>>(used(rows, s), some)(
              panels[s], 0, b + (j + jj) * c.depth, 0, c.depth, block + s * kStrip * kBlockColumns + jj, kBlockColumns,
              some, Ending{nullptr, 1}, ahead);
        }
      }
      const FlushDenormals flush;
      const auto load_from = [&](int64_t r, int64_t x, int64_t lanes) __attribute__((always_inline)) {
        return load_some(block + r * kBlockColumns + (x - j), lanes);
      };
      update_blocks(rule, weights, i, rows, j, j + columns, LoadedGradient{load_from});
    }
  }
}

// With few non-zeros in a: rows of the gradient are summed into a block in the L2 cache, and used from there.
template <typename Types>
void update_sparse_rows(const ProductUpdateContext& c, void* const* buffers, uint32_t part) {
  using Rule = typename Types::Rule;
  using Moment = typename Types::Moment;
  constexpr int kLr = 3 + Types::kTensors;
  const int kOut = kLr + (c.rule.counts_steps ? 2 : 1);
  const Rule rule(c.rule, *static_cast<const float*>(buffers[kLr]), buffers[kLr + 1]);
  const int64_t n = c.columns, strip = Types::kCoded ? int64_t{kBlock} : int64_t{kRows};
  const uint32_t number = step_number(c.rule, buffers[kLr + 1]);
  const SparseContext& marks = *c.marks;
  void* const product[] = {buffers[1], buffers[2], nullptr, buffers[c.packed + 1]};
  float* const block = static_cast<float*>(buffers[c.packed]) + part * c.block_rows * n;
  const Range strips = share((c.rows + strip - 1) / strip, c.parts, part);
  const int64_t end = strips.end * strip < c.rows ? strips.end * strip : c.rows;
  for (int64_t i = strips.begin * strip; i < end; i += c.block_rows) {
    const int64_t rows = end - i < c.block_rows ? end - i : c.block_rows;
    sparse_rows(marks, product, i, i + rows, block);
    const FlushDenormals flush;
    if constexpr (Types::kCoded) {
      const CodedWeights weights = coded_weights<Rule>(buffers, 3, kOut, n, number);
      for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
        const auto load_from = [&](int64_t r, int64_t j, int64_t lanes) __attribute__((always_inline)) {
          return load_some(block + (r0 + r) * n + j, lanes);
        };
        update_blocks(rule, weights, i + r0, rows - r0 < kBlock ? rows - r0 : kBlock, 0, n, LoadedGradient{load_from});
      }
    } else {
      const Elements<Rule, Moment> all = elements_of<Rule, Moment>(buffers, 3, kOut, RandomBits(number));
      from_place(all, i * n, block).template steps<true>(rule, 0, rows * n);
    }
  }
}

// Prefetches the rows of w and of the moments that are updated two rows later.
template <typename Rule, typename Moment>
HM_INLINE void fetch_row(const Elements<Rule, Moment>& all, int64_t at, int64_t columns) {
  constexpr int64_t kLine = 64;
  for (int64_t j = 0; j < columns; j += kLine / 4) {
    __builtin_prefetch(all.w + at + j);
    for (int k = 0; k < Rule::kMoments; ++k)
      if (sizeof(Moment) == sizeof(float) || j % (kLine / 2) == 0) __builtin_prefetch(all.old[k] + at + j);
  }
}

// Computes a tile of the gradient with rounded operands.
HM_INLINE void rounded_tile(const ProductUpdateContext& c, const uint32_t* packed, int64_t i, int64_t rows, int64_t j,
                            int64_t columns, float* block) {
  const RoundedRoutines& r = *c.rounding;
  RoundedBlock x{};
  x.a = packed + i / r.rows * c.a_strip;
  x.b = packed + c.packed_a + j / r.columns * c.b_strip;
  x.a_strip = c.a_strip, x.b_strip = c.b_strip;
  x.rows = rows, x.columns = columns;
  x.c = block, x.c_row = kBlockColumns;
  for (int64_t k = 0; k < c.depth; k += r.depth, x.a += c.a_block, x.b += c.b_block, x.add = true) {
    x.depth = c.depth - k < r.depth ? c.depth - k : r.depth;
    r.multiply(x);
  }
}

// Computes the gradient tile by tile with rounded operands and calls step(i, rows, j, columns, block) for each tile.
template <typename Step>
HM_INLINE void for_rounded_tiles(const ProductUpdateContext& c, const uint32_t* packed, uint32_t part, Step step) {
  alignas(64) float block[kMostTileRows * kBlockColumns];
  const int64_t tile = c.rounding->tile_rows;
  const Range tiles = share((c.rows + tile - 1) / tile, c.parts, part);
  for (int64_t i = tiles.begin * tile; i < tiles.end * tile && i < c.rows; i += tile) {
    const int64_t rows = c.rows - i < tile ? c.rows - i : tile;
    for (int64_t j = 0; j < c.columns; j += kBlockColumns) {
      const int64_t columns = c.columns - j < kBlockColumns ? c.columns - j : kBlockColumns;
      rounded_tile(c, packed, i, rows, j, columns, block);
      step(i, rows, j, columns, block);
    }
  }
}

template <typename Types>
void update_rounded_tiles(const ProductUpdateContext& c, void* const* buffers, uint32_t part) {
  using Rule = typename Types::Rule;
  using Moment = typename Types::Moment;
  constexpr int kLr = 3 + Types::kTensors;
  const int kOut = kLr + (c.rule.counts_steps ? 2 : 1);
  const Rule rule(c.rule, *static_cast<const float*>(buffers[kLr]), buffers[kLr + 1]);
  const uint32_t number = step_number(c.rule, buffers[kLr + 1]);
  const auto* const packed = static_cast<const uint32_t*>(buffers[c.packed]);
  const int64_t n = c.columns;
  if constexpr (Types::kCoded) {
    const CodedWeights weights = coded_weights<Rule>(buffers, 3, kOut, n, number);
    for_rounded_tiles(
        c, packed, part,
        [&](int64_t i, int64_t rows, int64_t j, int64_t columns, const float* block) __attribute__((always_inline)) {
          const FlushDenormals flush;
          for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
            const auto load_from = [&](int64_t r, int64_t x, int64_t lanes) __attribute__((always_inline)) {
              return load_some(block + (r0 + r) * kBlockColumns + (x - j), lanes);
            };
            update_blocks(rule, weights, i + r0, rows - r0 < kBlock ? rows - r0 : kBlock, j, j + columns,
                          LoadedGradient{load_from});
          }
        });
  } else {
    const Elements<Rule, Moment> all = elements_of<Rule, Moment>(buffers, 3, kOut, RandomBits(number));
    for_rounded_tiles(
        c, packed, part,
        [&](int64_t i, int64_t rows, int64_t j, int64_t columns, const float* block) __attribute__((always_inline)) {
          constexpr int64_t kAhead = 2;
          const FlushDenormals flush;
          const int64_t at = i * n + j;
          for (int64_t r = 0; r < rows; ++r) {
            if (r + kAhead < rows) fetch_row(all, at + (r + kAhead) * n, columns);
            from_place(all, at + r * n, block + r * kBlockColumns).template steps<false>(rule, 0, columns);
          }
        });
  }
}

}  // namespace

void update_product(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const ProductUpdateContext*>(context);
  if (phase == 0) {
    float* packed = static_cast<float*>(buffers[c.packed]);
    const Range panels = share((c.columns + kColumns - 1) / kColumns, c.pack_parts, part);
    const int64_t j = panels.begin * kColumns,
                  end = panels.end * kColumns < c.columns ? panels.end * kColumns : c.columns;
    if (j < end)
      pack_columns(static_cast<const float*>(buffers[2]) + j, c.columns, end - j, c.depth, packed + j * c.depth,
                   c.depth * kColumns);
    return;
  }
  with_step_types(
      c.kind, c.rule, [&](auto types) __attribute__((always_inline)) {
        using Types = decltype(types);
        if (phase == 2)
          update_sparse_rows<Types>(c, buffers, part);
        else if (c.rounding)
          update_rounded_tiles<Types>(c, buffers, part);
        else if constexpr (Types::kCoded)
          update_coded_tiles<Types>(c, buffers, part);
        else
          update_dense_tiles<Types>(c, buffers, part);
      });
}

}  // namespace harmonics::cpu::HM_ISA

#else

#include "../product_costs.hpp"

HM_VECTOR_CODE(update_product)

namespace harmonics::cpu {
namespace {

// Minimum nanoseconds of a part that packs b in f32: while one thread packs, the others wait.
constexpr double kPackGrain = 1500;
constexpr uint32_t kMostBuffers = 16;  // Adam with scales: 9 inputs, 5 results, packed b, marks

// A step for a batch. If a has few non-zeros, the gradient is a sparse product.
struct BatchUpdate : ProductUpdateContext {
  SparseContext marks_of_a{};  // its buffers: a, b, none, the marks
  bool looks = false;
  uint32_t inputs = 0, outputs = 0;
  uint64_t behind_marks = 0;     // offset of blocks of the gradient, or of the packed b, in the workspace
  std::vector<uint32_t> phases;  // number of parts
};

// Each part packs a share of both operands.
void pack_factors(const BatchUpdate& c, void* const* buffers, uint32_t* to, uint32_t part) {
  const auto pack = [&](uint32_t buffer, int64_t count, bool is_b, uint32_t* at) {
    const RoundedOperand x{buffers[buffer], 1, count, count, c.depth, is_b};
    pack_rounded_part(*c.rounding, x, at, c.pack_parts, part);
  };
  pack(1, c.rows, false, to);
  pack(2, c.columns, true, to + c.packed_a);
}

// Phases: mark the non-zeros of a (if it pays); packing of b, unless a has few; steps.
void run_batch(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const BatchUpdate*>(context);
  char* const workspace = static_cast<char*>(buffers[c.inputs + c.outputs]);
  void* const product[] = {buffers[1], buffers[2], nullptr, workspace};
  if (c.looks && phase == 0) return chosen::sparse_build()(c.marks, product, 0, part);
  const bool is_last = phase + 1 == c.phases.size();
  const bool skips = c.looks && is_sparse(*c.marks, product);
  if (skips && !is_last) return;
  if (c.rounding && !is_last)
    return pack_factors(c, buffers, reinterpret_cast<uint32_t*>(workspace + c.behind_marks), part);
  void* own[kMostBuffers];
  for (uint32_t i = 0; i < c.inputs + c.outputs; ++i) own[i] = buffers[i];
  own[c.packed] = workspace + c.behind_marks;
  own[c.packed + 1] = workspace;
  chosen::update_product()(static_cast<const ProductUpdateContext*>(&c), own, skips ? 2 : is_last, part);
}

// Adds the phase that searches a for zeros, if that can pay. `bytes`: of the workspace otherwise. `strip`: rows of the
// gradient that a step takes at least.
bool answer_looking(std::unique_ptr<BatchUpdate> c, const Product& gradient, int64_t strip, uint64_t bytes,
                    const char* name, hx_kernel& out) {
  const int64_t n = c->columns, strips = (c->rows + strip - 1) / strip;
  c->packed = c->inputs + c->outputs;
  c->marks = &c->marks_of_a;
  c->marks_of_a.product = gradient;
  c->marks_of_a.workspace = 3;
  c->looks = (!c->rounding || c->rounding->most_nonzeros > 0) && plan_marks(c->marks_of_a);
  c->phases = {c->pack_parts, c->parts};
  if (c->looks) {
    c->phases.insert(c->phases.begin(), c->marks_of_a.build_parts);
    c->behind_marks = (static_cast<uint64_t>(kVerdictBytes + marks_bytes(c->marks_of_a)) + 63) & ~uint64_t{63};
    // A part's block: few rows, to stay in the L2 cache, but enough to reuse the rows of b.
    constexpr int64_t kBlockFloats = 1 << 15, kLeastBlock = 48;  // a multiple of all strips
    const int64_t own = (strips + c->parts - 1) / c->parts * strip;
    c->block_rows = std::min(own, std::max(kLeastBlock, kBlockFloats / n / kLeastBlock * kLeastBlock));
    bytes = std::max(bytes, static_cast<uint64_t>(c->parts * c->block_rows * n) * sizeof(float));
  }
  const std::vector<uint32_t> phases = c->phases;
  bytes += c->behind_marks;
  hx_kernel& kernel = answer(out, std::move(c), run_batch, name, phases);
  kernel.workspace = bytes;
  kernel.in_place = 1;
  return true;
}

// Plans a step with rounded factors.
bool answer_rounded_steps(std::unique_ptr<BatchUpdate> c, const Product& gradient, double products, int64_t strip,
                          hx_kernel& out) {
  using namespace product_costs;
  const RoundedRoutines& r = *c->rounding;
  c->a_strip = rounded_strip(r, c->depth, false), c->b_strip = rounded_strip(r, c->depth, true);
  c->a_block = rounded_block(r, c->rows, c->depth, false), c->b_block = rounded_block(r, c->columns, c->depth, true);
  c->packed_a = rounded_words(r, c->rows, c->depth, false);
  const int64_t words = c->packed_a + rounded_words(r, c->columns, c->depth, true);
  c->pack_parts = rounded_pack_parts(r, std::max(c->rows, c->columns), c->depth, c->columns > c->rows);
  c->parts = parts_for(2 * products / r.rate + nanoseconds_of(c->rule), (c->rows + r.tile_rows - 1) / r.tile_rows,
                       kPackedGrain);
  return answer_looking(std::move(c), gradient, strip, static_cast<uint64_t>(words) * sizeof(uint32_t),
                        r.name_of_update, out);
}

}  // namespace

// The result has the bits of a separate product and step: all dense kernels of AVX2 and AVX-512 add up to
// kMostUpdateDepth terms in order. Other instruction sets use oneDNN for these sizes, which adds in another order.
bool plan_batch_update(const Site& site, const OuterUpdateContext& one, int64_t samples, hx_kernel& out) {
  constexpr int64_t kLeastRows = 48, kLeastColumns = 64;  // smaller gradients stay in the cache
  const int64_t m = one.rows, n = one.columns;
  if (isa().vector < 8) return false;
  if (one.gradient || m < kLeastRows || n < kLeastColumns) return false;
  if (count(site.in(1)) != samples * m || count(site.in(2)) != samples * n) return false;
  Product gradient{1, m, n, samples, 1, m, n, 1, 0, 1, 2, 0, false, 0};
  gradient.half = site.allows_half();
  gradient.bf16 = site.allows_bf16();
  const double products = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(samples);
  const RoundedRoutines* const rounding = rounding_of(gradient);
  if (samples > (rounding ? rounding->most_update_depth : kMostUpdateDepth)) return false;
  auto c = std::make_unique<BatchUpdate>();
  c->rule = one.rule, c->kind = one.kind;
  c->rows = m, c->columns = n, c->depth = samples;
  c->inputs = site.inputs(), c->outputs = site.outputs();
  c->rounding = rounding;
  const int64_t columns = packed_column_panel(isa().vector), panels = (n + columns - 1) / columns,
                rows = packed_row_panel(isa().vector);
  const int64_t strip = c->rule.moments == MomentType::coded ? kMomentBlock : rows;
  if (rounding) return answer_rounded_steps(std::move(c), gradient, products, strip, out);
  c->pack_parts = parts_for(static_cast<double>(n * samples) * 0.25, panels, kPackGrain);
  c->parts = parts_for(products / 45 + nanoseconds_of(c->rule), (m + strip - 1) / strip, 25000);
  const uint64_t bytes = static_cast<uint64_t>(panels * columns * samples) * sizeof(float);
  return answer_looking(std::move(c), gradient, strip, bytes, "product and update", out);
}

}  // namespace harmonics::cpu

#endif
