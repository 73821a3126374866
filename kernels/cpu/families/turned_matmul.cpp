// Products with a column-major B and few rows, or with a large column-major B, such as linear maps. Computed as B^T
// A^T: B is read in place, a column for each row of a tile, and only A is packed.
#include "../family.hpp"
#include "../matmul.hpp"

namespace harmonics::cpu {
namespace {

// A product computed as B^T A^T: fewer than 48 rows, or more with a large B. Phases: pack A, multiply. Workspace: A,
// and for each part and slice of the depth the sums of kTurnedColumns columns. The slices are those of packed products,
// so that the order of summation is the same.
struct TurnedContext {
  Product product;
  uint32_t depth_parts = 1;
  uint32_t pack_parts = 1, parts = 1;
};
constexpr int64_t kTurnedColumns = 96;

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "packed.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr int64_t kTurnedBlock = kTurnedColumns / kRows * kRows;

// Prefetches `left` lines of later columns of B, one line per k-loop step.
struct ColumnsAhead {
  static constexpr bool kPlain = true;
  const float* at;
  int64_t step, columns, left, fetched = 0;
  template <PanelOrder>
  HM_INLINE void fetch() {
    if (--left < 0) return;
    __builtin_prefetch(at, 0, 2);
    at += step;
    if (++fetched == columns) fetched = 0, at += 16 - columns * step;
  }
};

struct DepthRange {
  int64_t begin, end;
};

// Multiplies `columns` <= kTurnedBlock columns of B and all of A over a range of the depth. `after`: the columns that
// follow, for prefetch.
HM_INLINE void add_columns(const Product& p, const float* packed, const float* b, int64_t columns, DepthRange all,
                           const float* after, float* sums, int64_t sums_row) {
  const int64_t panel = p.k * kColumns, row_panels = sums_row / kColumns;
  // Columns a multiple of a page apart map to one set of the L1 cache, which has eight ways.
  const int64_t step = p.b_column % 1024 == 0 && kRows > 6 ? 6 : kRows;
  for (int64_t k = all.begin; k < all.end; k += kPackedDepth) {
    const int64_t depth = all.end - k < kPackedDepth ? all.end - k : kPackedDepth;
    const float* next = k + depth < all.end ? b + k + depth : after;
    // A panel of A stays in the L1 cache while columns of B are streamed and the next ones prefetched.
    for (int64_t i = 0; i < row_panels; ++i) {
      const int64_t rows = p.m - i * kColumns < kColumns ? p.m - i * kColumns : kColumns;
      const int64_t lines = (kPackedDepth / 16 + row_panels - 1) / row_panels, share_of_next = i * lines * 16;
      for (int64_t j = 0; j < columns; j += step) {
        float* const sum = sums + j * sums_row + i * kColumns;
        const int64_t some = columns - j < step ? columns - j : step;
        tile_for<PanelOrder::by_rows, ColumnsAhead>(some, rows)(
            b + j * p.b_column + k, p.b_column, packed + i * panel + k * kColumns, 0, depth, sum, sums_row, rows,
            Ending{k > all.begin ? sum : nullptr, 1},
            ColumnsAhead{next + j * p.b_column + share_of_next, p.b_column, some, some * lines});
      }
    }
  }
}

HM_INLINE void add_sums(float* to, const float* more, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) store(to + i, load(to + i) + load(more + i));
}

}  // namespace

// Phases: pack A^T; multiply columns of B. The order of summation is that of the packed product.
void turned_matmul(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const TurnedContext*>(context);
  const Product& p = c.product;
  const float *a = static_cast<const float*>(buffers[p.a]), *b = static_cast<const float*>(buffers[p.b]);
  float* packed = static_cast<float*>(buffers[p.c + 1]);
  const int64_t panel = p.k * kColumns;
  if (phase == 0) {
    const Range depth = share((p.k + 15) / 16, c.pack_parts, part);
    const int64_t k0 = depth.begin * 16, k1 = depth.end * 16 < p.k ? depth.end * 16 : p.k;
    if (p.a_row == 1)
      pack_columns(a + k0 * p.a_column, p.a_column, p.m, k1 - k0, packed + k0 * kColumns, panel);
    else
      pack_transposed(a + k0, p.a_row, p.m, k1 - k0, packed + k0 * kColumns, panel);
    return;
  }
  float* to = static_cast<float*>(buffers[p.c]);
  const int64_t row_panels = (p.m + kColumns - 1) / kColumns, sums_row = row_panels * kColumns;
  const int64_t slice_sums = kTurnedColumns * sums_row;
  float* const sums = packed + row_panels * panel + part * c.depth_parts * slice_sums;
  const Range tiles = share((p.n + kRows - 1) / kRows, c.parts, part);
  const int64_t j0 = tiles.begin * kRows, j1 = tiles.end * kRows < p.n ? tiles.end * kRows : p.n;
  for (int64_t j = j0; j < j1; j += kTurnedBlock) {
    const int64_t columns = j1 - j < kTurnedBlock ? j1 - j : kTurnedBlock;
    for (uint32_t slice = 0; slice < c.depth_parts; ++slice) {
      const DepthRange all{slice_begin(p.k, kEvenGranule, c.depth_parts, slice),
                           slice_begin(p.k, kEvenGranule, c.depth_parts, slice + 1)};
      const bool is_last = slice + 1 == c.depth_parts;
      const float* after =
          is_last ? b + (j + kTurnedBlock < j1 ? j + kTurnedBlock : j) * p.b_column : b + j * p.b_column + all.end;
      add_columns(p, packed, b + j * p.b_column, columns, all, after, sums + slice * slice_sums, sums_row);
    }
    if (c.depth_parts > 1) add_sums(sums, sums + slice_sums, columns * sums_row);
    transpose(sums, sums_row, to + j, p.n, columns, p.m);
    end_product(p, buffers, 0, p.m, j, j + columns);
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

#include "../product_costs.hpp"
#include "../routes.hpp"

HM_VECTOR_CODE(turned_matmul)

namespace harmonics::cpu {

using namespace product_costs;

namespace {

// Whether B^T A^T reads a column-major B best: with few rows packing B takes as long as multiplying, and a large B is
// not reused enough to repay it.
bool suits_turned(const Product& p) {
  return is_packed_here(p) && p.b_column != 1 && !p.accumulate && !p.chain && !p.sums &&
         (p.m < kLeastKeptRows || (is_large(p) && p.a_column == 1));
}
void answer_turned(std::unique_ptr<OwnedGrid> grid, double nanoseconds, hx_kernel& out) {
  auto c = std::make_unique<TurnedContext>();
  const Product& p = c->product = grid->product;
  c->depth_parts = depth_parts_of(p, parts_for(nanoseconds, INT32_MAX, kPackedGrain));
  c->pack_parts = parts_for(static_cast<double>(p.m * p.k) * kPackNanoseconds, (p.k + 15) / 16);
  c->parts = parts_for(nanoseconds, panels(p.n, packed_row_panel(isa().vector)), kPackedGrain);
  if (p.m >= kLeastKeptRows) c->parts = std::min(c->parts, kUsualParts);  // each has its own sums in the workspace
  const int64_t panel = packed_column_panel(isa().vector), rows = panels(p.m, panel) * panel;
  const uint64_t floats =
      static_cast<uint64_t>(rows) * (static_cast<uint64_t>(p.k) + c->parts * c->depth_parts * kTurnedColumns);
  const std::vector<uint32_t> phases{c->pack_parts, c->parts};
  answer(out, std::move(c), chosen::turned_matmul(), "turned matmul", phases).workspace = floats * sizeof(float);
}

}  // namespace

constinit const Route routes::turned{Route::none, suits_turned, packed_nanoseconds, answer_turned};

}  // namespace harmonics::cpu

#endif
