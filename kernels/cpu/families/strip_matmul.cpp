// Products of medium height with a large row-major B, such as input gradients. B is read in place, along its rows.
#include "../family.hpp"
#include "../matmul.hpp"

namespace harmonics::cpu {
namespace {

// A product of medium height with a large row-major B. Phases: multiply, reduce the slices of the depth. Workspace: for
// each part a block of A, a panel of B and, if `has_own_sums`, the sums of a strip; then the sums of the second slice.
struct StripContext {
  Product product;
  uint32_t depth_parts = 1, column_parts = 1, sum_parts = 0;
  int64_t part_floats = 0;    // block, panel and sums of one part
  bool has_own_sums = false;  // rows of C a multiple of a page apart map to few sets of the caches
};
constexpr int64_t kStripColumns = 512;  // columns of B per strip, read along its rows
constexpr int64_t kOwnSumsRow = kStripColumns + 16;

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "packed.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Prefetches the next columns of B row by row: `burst` lines per `every` calls, so that all whole tiles of the current
// columns share the work.
struct StripAhead {
  const float* row;
  int64_t b_row, lines, left, every = 1, burst = 1, line = 0, steps = 0;  // lines: per row; left: of all rows
  // The next block of A, a line per call.
  const float* a = nullptr;
  int64_t a_row = 0, a_depth = 0, a_left = 0, a_at = 0;  // a_left: rows
  // Divides the lines of B among `calls`.
  HM_INLINE void share_among(int64_t calls) {
    if (calls <= 0) return;
    if (left > 0) every = calls / left > 1 ? calls / left : 1;
    burst = (left + calls - 1) / calls;
  }
  HM_INLINE void fetch() {
    if (a_left > 0) {
      __builtin_prefetch(a + a_at, 0, 2);
      a_at += 16;
      if (a_at >= a_depth) a_at = 0, a += a_row, --a_left;
    }
    if (--steps > 0) return;
    steps = every;
    for (int64_t i = 0; i < burst && left > 0; ++i, --left) {
      __builtin_prefetch(row + line * 16, 0, 2);
      if (++line == lines) line = 0, row += b_row;
    }
  }
};

constexpr int64_t kRowsAhead = 8;  // prefetch distance of the tile that packs

// Micro-kernel for a whole tile; `a` is the copy of the rows of A. kPacks: reads B in place and packs it into `own`.
template <bool kPacks>
[[gnu::noinline, maybe_unused]] void strip_tile(const float* a, const float* b, int64_t b_row, int64_t depth, float* c,
                                                int64_t c_row, float* own, const Ending& end, StripAhead& ahead) {
  vf sum[kRows][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = vf{};
  for (int i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; j += 16) __builtin_prefetch(c + i * c_row + j, 1);
  const auto add = [&](int64_t k) __attribute__((always_inline)) {
    vf row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + v * kWidth);
    if (kPacks) {
      // Rows of B a page or more apart: the processor does not fetch them into the L1 cache itself.
      for (int64_t j = 0; j < kColumns; j += 16) __builtin_prefetch(b + kRowsAhead * b_row + j);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) store(own + v * kWidth, row[v]);
      own += kColumns;
    }
    b += b_row;
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const vf x = splat(a[i * kRowsInPlaceStride + k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) add_product(sum[i][v], x, row[v]);
    }
  };
  int64_t k = 0;
  for (; k + 2 <= depth; k += 2, a += 2) {
    ahead.fetch();
    add(0), add(1);
  }
  for (; k < depth; ++k, ++a) add(0);
  store_sums(sum, c, c_row, kColumns, end);
}

// The product of a part's rows of A and columns of B over a block of the depth.
struct Strip {
  const float *a, *b, *next_a, *next;  // next: the blocks that follow
  int64_t a_row, b_row, rows, columns, depth, next_depth;
  float* to;
  int64_t c_row;
  float *own_a, *own_b;
};

// Multiplies the columns of one panel, which the first tile packs for the others.
HM_INLINE void multiply_panel(const Strip& x, int64_t j, int64_t columns, const Ending& end, StripAhead& ahead) {
  constexpr int64_t kRow = kRowsInPlaceStride;
  const bool packs_first = columns == kColumns && x.rows >= kRows;
  if (packs_first)
    strip_tile<true>(x.own_a, x.b + j, x.b_row, x.depth, x.to + j, x.c_row, x.own_b, end, ahead);
  else
    pack_columns(x.b + j, x.b_row, columns, x.depth, x.own_b, 0);
  for (int64_t i = packs_first ? kRows : 0; i < x.rows; i += kRows) {
    const int64_t used = x.rows - i < kRows ? x.rows - i : kRows, at = i * x.c_row;
    if (used == kRows && columns == kColumns)
      strip_tile<false>(x.own_a + i * kRow, x.own_b, kColumns, x.depth, x.to + j + at, x.c_row, nullptr, end.at(at),
                        ahead);
    else
      tile_for<PanelOrder::by_rows>(used, columns)(x.own_a + i * kRow, kRow, x.own_b, 0, x.depth, x.to + j + at,
                                                   x.c_row, columns, end.at(at), Ahead{x.own_a, 0, 1});
  }
}

constexpr int64_t kGroup = 64;  // prefetch distance, columns

HM_INLINE void multiply_strip(const Strip& x, const Ending& end) {
  constexpr int64_t kRow = kRowsInPlaceStride;
  for (int64_t i = 0; i < x.rows; ++i)
    __builtin_memcpy(x.own_a + i * kRow, x.a + i * x.a_row, static_cast<size_t>(x.depth) * sizeof(float));
  for (int64_t group = 0; group < x.columns; group += kGroup) {
    const int64_t width = x.columns - group < kGroup ? x.columns - group : kGroup, after = x.columns - group - width;
    const int64_t next_depth = after > 0 ? x.depth : x.next_depth,
                  next_width = after > 0 && after < kGroup ? after : width, lines = (next_width + 15) / 16;
    StripAhead ahead{after > 0 ? x.b + group + width : x.next, x.b_row, lines, lines * next_depth};
    ahead.share_among(x.rows / kRows * (width / kColumns) * (x.depth / 2));
    if (after <= 0 && x.next_depth > 0)
      ahead.a = x.next_a, ahead.a_row = x.a_row, ahead.a_depth = x.next_depth, ahead.a_left = x.rows;
    for (int64_t j = group; j < group + width; j += kColumns)
      multiply_panel(x, j, group + width - j < kColumns ? group + width - j : kColumns, end.at(j), ahead);
  }
}

// Returns the sums of the second slice of the depth; the sums of the first are in C.
HM_INLINE float* second_strip_sums(const StripContext& c, void* const* buffers) {
  return static_cast<float*>(buffers[c.product.c + 1]) + c.part_floats * c.depth_parts * c.column_parts;
}

}  // namespace

// Phases: multiply; add the slices of the depth.
void strip_matmul(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const StripContext*>(context);
  const Product& p = c.product;
  if (phase == 1) return end_halves(p, buffers, second_strip_sums(c, buffers), c.sum_parts, part);
  const uint32_t slice = part / c.column_parts, column = part % c.column_parts;
  const int64_t j0 = slice_begin(p.n, kColumns, c.column_parts, column),
                j1 = slice_begin(p.n, kColumns, c.column_parts, column + 1);
  const int64_t k0 = slice_begin(p.k, kEvenGranule, c.depth_parts, slice),
                k1 = slice_begin(p.k, kEvenGranule, c.depth_parts, slice + 1);
  const float *a = static_cast<const float*>(buffers[p.a]), *b = static_cast<const float*>(buffers[p.b]) + j0;
  float* to = (slice == 0 ? static_cast<float*>(buffers[p.c]) : second_strip_sums(c, buffers)) + j0;
  float* const own_a = static_cast<float*>(buffers[p.c + 1]) + part * c.part_floats;
  float* const own_sums = c.has_own_sums ? own_a + c.part_floats - p.m * kOwnSumsRow : nullptr;
  for (int64_t j = 0; j < j1 - j0; j += kStripColumns) {
    const int64_t columns = j1 - j0 - j < kStripColumns ? j1 - j0 - j : kStripColumns;
    for (int64_t k = k0; k < k1; k += kPackedDepth) {
      const int64_t depth = k1 - k < kPackedDepth ? k1 - k : kPackedDepth, left = k1 - k - depth;
      const Ending end = own_sums     ? Ending{k > k0 ? own_sums : nullptr, 1}
                         : slice == 0 ? ending_of(p, buffers, k).at(j0 + j)
                                      : Ending{k > k0 ? second_strip_sums(c, buffers) + j0 + j : nullptr, 1};
      const bool is_last = left == 0;
      const Strip x{a + k,
                    b + k * p.b_row + j,
                    is_last ? a + k0 : a + k + depth,
                    is_last ? b + k0 * p.b_row + j + columns : b + (k + depth) * p.b_row + j,
                    p.a_row,
                    p.b_row,
                    p.m,
                    columns,
                    depth,
                    is_last               ? (j + columns < j1 - j0 ? kPackedDepth : 0)
                    : left < kPackedDepth ? left
                                          : kPackedDepth,
                    own_sums ? own_sums : to + j,
                    own_sums ? kOwnSumsRow : p.n,
                    own_a,
                    own_a + p.m * kRowsInPlaceStride};
      multiply_strip(x, end);
    }
    if (own_sums)
      end_columns(p, buffers, own_sums, kOwnSumsRow, j0 + j, j0 + j + columns);
    else if (c.depth_parts == 1)
      end_product(p, buffers, 0, p.m, j0 + j, j0 + j + columns);
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

#include "../product_costs.hpp"
#include "../routes.hpp"

HM_VECTOR_CODE(strip_matmul)

namespace harmonics::cpu {

using namespace product_costs;

namespace {

constexpr int64_t kLeastStripRows = 16, kLeastStripColumns = 256;
constexpr int64_t kLeastOwnSumsRows = 128;  // fewer rows of C stay in the caches
constexpr int64_t kLeastColdColumns = 128;  // likewise for a smaller, cold B, also of a part

// Returns the fewest columns of a strip.
int64_t least_strip(const Product& p) { return p.k * p.n < kLargeFloats ? kLeastColdColumns : kLeastStripColumns; }

// Whether a large B is read along its rows, in strips of columns.
bool suits_strips(const Product& p) {
  return is_packed_here(p) && is_large(p) && p.a_column == 1 && p.b_column == 1 && !p.sums && p.m >= kLeastStripRows &&
         p.n >= least_strip(p);
}
void answer_strips(std::unique_ptr<OwnedGrid> grid, double nanoseconds, hx_kernel& out) {
  auto c = std::make_unique<StripContext>();
  const Product& p = c->product = grid->product;
  const uint32_t wanted = parts_for(nanoseconds, INT32_MAX, kPackedGrain);
  c->depth_parts = depth_parts_of(p, wanted);
  const int64_t least = least_strip(p);
  while (c->depth_parts * c->column_parts < wanted && p.n >= 2 * least * c->column_parts) c->column_parts *= 2;
  c->part_floats = p.m * kRowsInPlaceStride + packed_column_panel(isa().vector) * kPackedDepth;
  c->has_own_sums = p.m >= kLeastOwnSumsRows && p.n % 1024 == 0 && c->depth_parts == 1 && !p.accumulate;
  if (c->has_own_sums) c->part_floats += p.m * kOwnSumsRow;
  const uint32_t parts = c->depth_parts * c->column_parts;
  const int64_t floats = parts * c->part_floats + (c->depth_parts - 1) * p.m * p.n;
  std::vector<uint32_t> phases{parts};
  if (c->depth_parts > 1) phases.push_back(c->sum_parts = parts_of_sum(p));
  answer(out, std::move(c), chosen::strip_matmul(), "matmul by strips", phases).workspace =
      static_cast<uint64_t>(floats) * sizeof(float);
}

}  // namespace

constinit const Route routes::strips{Route::none, suits_strips, packed_nanoseconds, answer_strips};

}  // namespace harmonics::cpu

#endif
