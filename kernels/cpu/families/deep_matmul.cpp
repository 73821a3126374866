// Products whose operands are both contiguous for each k, such as weight gradients. Operands are read in place. Each
// part passes over the depth once, by blocks of rows and columns that fit the L2 cache, and prefetches the next block,
// since long operands come from memory.
#include "../family.hpp"
#include "../matmul.hpp"

namespace harmonics::cpu {
namespace {

// A product whose operands are both contiguous for each k: A^T and B are row-major. Workspace per part: a panel for
// incomplete columns.
struct DeepContext {
  Product product;
  uint32_t row_parts = 1, column_parts = 1;
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "packed.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Prefetch state of the next block: each tile prefetches one cache line per k.
struct NextBlock {
  const float *a, *b;
  int64_t a_step, b_step, a_floats, b_floats, depth, fetched = 0;

  // Returns the lines for the next tile; lines already in cache if none are left or the next block has a smaller depth.
  HM_INLINE Ahead lines(const float* there, int64_t sums) {
    const int64_t at = fetched;
    if (depth < sums || at >= a_floats + b_floats) return {there, 16, sums};
    fetched += 16;
    return at < b_floats ? Ahead{b + at, b_step, sums} : Ahead{a + at - b_floats, a_step, sums};
  }
};

// A block read in place. Only the last columns, if they do not fill a panel, are packed.
struct Block {
  const float *a, *b, *last_b;
  int64_t a_step, b_step, rows, columns, depth;
};
HM_INLINE void multiply_ahead(const Block& x, float* to, int64_t c_row, const Ending& end, NextBlock& next) {
  for (int64_t j = 0; j < x.columns; j += kColumns)
    for (int64_t i = 0; i < x.rows; i += kRows) {
      const Ahead ahead = next.lines(x.b, x.depth);
      const int64_t rows = x.rows - i, columns = x.columns - j;
      const bool whole = columns >= kColumns;
      tile_for<PanelOrder::by_depth>(rows, columns)(x.a + i, x.a_step, whole ? x.b + j : x.last_b,
                                                    whole ? x.b_step : kColumns, x.depth, to + i * c_row + j, c_row,
                                                    columns, end.at(i * c_row + j), ahead);
    }
}

}  // namespace

void deep_matmul(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const DeepContext*>(context);
  const Product& p = c.product;
  const int64_t i0 = slice_begin(p.m, kEvenGranule, c.row_parts, part / c.column_parts),
                i1 = slice_begin(p.m, kEvenGranule, c.row_parts, part / c.column_parts + 1);
  const int64_t j0 = slice_begin(p.n, kColumns / 2, c.column_parts, part % c.column_parts),
                j1 = slice_begin(p.n, kColumns / 2, c.column_parts, part % c.column_parts + 1);
  float* last_b = static_cast<float*>(buffers[p.c + 1]) + part * (p.k < kPackedDepth ? p.k : kPackedDepth) * kColumns;
  const float *a = static_cast<const float*>(buffers[p.a]), *b = static_cast<const float*>(buffers[p.b]);
  float* to = static_cast<float*>(buffers[p.c]);
  for (int64_t k = 0; k < p.k; k += kPackedDepth) {
    const int64_t depth = p.k - k < kPackedDepth ? p.k - k : kPackedDepth, next = k + depth, left = p.k - next;
    const Ending end = ending_of(p, buffers, k);
    for (int64_t j = j0; j < j1; j += kPackedColumns) {
      const int64_t columns = j1 - j < kPackedColumns ? j1 - j : kPackedColumns;
      const int64_t rest = columns % kColumns;
      if (rest > 0) pack_columns(b + k * p.b_row + j + columns - rest, p.b_row, rest, depth, last_b, 0);
      for (int64_t i = i0; i < i1; i += kPackedRows) {
        const int64_t rows = i1 - i < kPackedRows ? i1 - i : kPackedRows;
        const Block block{
            a + i + k * p.a_column, b + k * p.b_row + j, last_b, p.a_column, p.b_row, rows, columns, depth};
        // The same rows and columns in the next block along k. Only the first block of rows or columns prefetches them.
        NextBlock ahead{a + i + next * p.a_column,
                        b + next * p.b_row + j,
                        p.a_column,
                        p.b_row,
                        j == j0 ? rows : 0,
                        i == i0 ? columns : 0,
                        left < kPackedDepth ? left : kPackedDepth};
        multiply_ahead(block, to + i * p.n + j, p.n, end.at(i * p.n + j), ahead);
      }
    }
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

#include "../product_costs.hpp"
#include "../routes.hpp"

HM_VECTOR_CODE(deep_matmul)

namespace harmonics::cpu {

using namespace product_costs;

namespace {

// Whether both operands are contiguous for each k, and this order reads them best: a small depth, or a large depth with
// few results.
bool is_by_depth(const Product& p) {
  const bool is_long = p.k >= 1024 && p.k >= 4 * std::max(p.m, p.n) && std::min(p.m, p.n) < 256;
  return p.a_column != 1 && p.b_column == 1 && (p.k <= kShortDepth || is_long) && !p.has_bias && !p.activation;
}

void answer_by_depth(std::unique_ptr<OwnedGrid> grid, double nanoseconds, hx_kernel& out) {
  const Product& p = grid->product;
  auto c = std::make_unique<DeepContext>();
  c->product = p;
  if (p.k <= kShortDepth) {
    // Slices the longer side, as other kernels do.
    (p.n >= p.m ? c->column_parts : c->row_parts) = parts_for(nanoseconds, INT32_MAX, kPackedGrain);
  } else {
    // Few, square parts, because each part reads all of its rows and columns.
    const uint32_t wanted = nanoseconds < 100000 ? 1 : std::max(2u, parts_for(nanoseconds, INT32_MAX, kLongSumGrain));
    while (c->row_parts * c->column_parts < wanted) {
      const int64_t rows = p.m / c->row_parts, columns = p.n / c->column_parts;
      if (std::max(rows, columns) < 96) break;
      rows >= columns ? c->row_parts *= 2 : c->column_parts *= 2;
    }
  }
  const uint32_t parts = c->row_parts * c->column_parts;
  const uint64_t workspace =
      parts * static_cast<uint64_t>(std::min(kPackedDepth, p.k) * packed_column_panel(isa().vector)) * sizeof(float);
  answer(out, std::move(c), chosen::deep_matmul(), "matmul by depth", {parts}).workspace = workspace;
}

}  // namespace

constinit const Route routes::by_depth{Route::descends,
                                       [](const Product& p) { return is_packed_here(p) && is_by_depth(p); },
                                       packed_nanoseconds, answer_by_depth};

}  // namespace harmonics::cpu

#endif
