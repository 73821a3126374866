#include "matmul.hpp"

#include <utility>

#include "bf16_product.hpp"
#include "families.hpp"
#include "onednn/matmul.hpp"
#include "product_costs.hpp"

namespace harmonics::cpu {

using namespace product_costs;

namespace {

struct OwnedGrid : MatmulContext {
  std::vector<int64_t> a_storage, b_storage;
};

// Chooses the grid of parts: batches first, then rows and columns so that operands are read as few times as possible.
void cut(MatmulContext& c, uint32_t all) {
  const Product& p = c.product;
  c.batch_parts = static_cast<uint32_t>(std::min<int64_t>(all, p.batch));
  const uint32_t wanted = all / c.batch_parts;
  c.row_parts = c.column_parts = 1;
  double least = 1e300;
  for (uint32_t r = 1; r <= wanted; r *= 2) {
    const uint32_t columns = wanted / r;
    const double read = static_cast<double>(r * p.n) + static_cast<double>(columns * p.m);
    if ((r > 1 && p.m < r * kRowGranule) || (columns > 1 && p.n < columns * kColumnGranule) || read >= least) continue;
    c.row_parts = r;
    c.column_parts = columns;
    least = read;
  }
}

constexpr int64_t kLeastPackedDepth = 64;  // for a smaller depth, rows of B are read in place
// Whether the packed kernel is at least as fast as oneDNN's, which also allocates memory in every run.
bool is_packed_here(const Product& p) {
  return isa().vector >= 8 && p.batch == 1 && p.m > kSmallSide && p.n >= 64 && p.k >= kLeastPackedDepth;
}

constexpr int64_t kShortDepth = 128;

int64_t panels(int64_t n, int64_t panel) { return (n + panel - 1) / panel; }
// Rounds up to whole cache lines, so that vectors of B do not cross lines.
int64_t lines(int64_t floats) { return (floats + 15) / 16 * 16; }
// Size of a block of rows or columns in floats, at most that of the operand.
int64_t block_floats(int64_t n, int64_t panel, int64_t most, int64_t depth) {
  return std::min(most, panels(n, panel) * panel) * std::min(kPackedDepth, depth);
}

// Whether both operands are contiguous for each k, and this order reads them best: a small depth, or a large depth with
// few results.
bool is_by_depth(const Product& p) {
  const bool is_long = p.k >= 1024 && p.k >= 4 * std::max(p.m, p.n) && std::min(p.m, p.n) < 256;
  return p.a_column != 1 && p.b_column == 1 && (p.k <= kShortDepth || is_long) && !p.has_bias && !p.activation;
}

// Returns the size of the largest slice, in whole granules, relative to the average.
double imbalance(int64_t length, int64_t granule, uint32_t parts) {
  int64_t most = 0;
  for (uint32_t i = 0; i < parts; ++i)
    most = std::max(
        most, panels(slice_begin(length, granule, parts, i + 1) - slice_begin(length, granule, parts, i), granule));
  return static_cast<double>(most * granule * parts) / static_cast<double>(length);
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
  answer(out, std::move(c), isa().deep_matmul, "matmul by depth", {parts}).workspace = workspace;
}

constexpr int64_t kLeastKeptRows = 48;
constexpr int64_t kManyRows = 1024;
// A B of this many floats exceeds the L2 cache. For fewer than kManyRows rows it is read in place, since a packed copy
// would double the memory traffic, or the memory if it were kept.
constexpr int64_t kLargeFloats = int64_t{1} << 19;
constexpr int64_t kLargeColdFloats = int64_t{1} << 16;  // of a B that no L2 cache holds from step to step
constexpr int64_t kLeastStripRows = 16, kLeastStripColumns = 256;
constexpr int64_t kLeastColdColumns = 128;  // likewise for a smaller, cold B, also of a part
bool is_large(const Product& p) { return p.k * p.n >= (p.cold_b ? kLargeColdFloats : kLargeFloats) && p.m < kManyRows; }

// If A is packed for all parts anyway, row slices cost no more: choose the more even division.
bool is_cut_by_columns(const Product& p, uint32_t parts) {
  if (p.a_column == 1) return p.n >= p.m;
  const int64_t rows = packed_row_panel(isa().vector), columns = packed_column_panel(isa().vector);
  return imbalance(p.n, columns / 2, parts) <= imbalance(p.m, rows, parts) + 0.05;
}
// Slices the longer side of the weight, so that each thread finds its slice in its cache in the next run. Slices of the
// depth exchange partial sums of C, which are smaller than the A that all column slices would read. Unsupported if C is
// accumulated into.
uint32_t depth_parts_of(const Product& p, uint32_t parts) {
  const int64_t narrowest = 16 * static_cast<int64_t>(std::min(parts, kMostSums));
  const bool suits = parts > 1 && narrowest <= p.n && p.n < p.k && p.a_column == 1 && !p.descends && !p.accumulate;
  return suits && is_cut_by_columns(p, parts) ? 2 : 1;
}

// Returns the fewest columns of a strip.
int64_t least_strip(const Product& p) { return p.k * p.n < kLargeFloats ? kLeastColdColumns : kLeastStripColumns; }

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
  answer(out, std::move(c), isa().turned_matmul, "turned matmul", phases).workspace = floats * sizeof(float);
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
void answer_own_blocks(std::unique_ptr<OwnedGrid> grid, double, hx_kernel& out) {
  constexpr int64_t kSide = 384;  // of a part: its block of B and C fit the L2 cache
  auto c = std::make_unique<PackedContext>();
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
  c->b_part_floats = (row_panel + panels(widest, column_panel) * column_panel) * kPackedDepth;
  const uint32_t parts = c->row_parts * c->column_parts;
  const uint64_t workspace = static_cast<uint64_t>(c->b_part_floats) * parts * sizeof(float);
  answer<PackedContext>(out, std::move(c), isa().packed_matmul, "packed blocks", {parts}).workspace = workspace;
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
  answer<PackedContext>(out, std::move(c), isa().packed_matmul, "packed matmul", phases).workspace = workspace;
  if (!keeps_b) return;
  out.packed_bytes = static_cast<uint64_t>(all_b) * sizeof(float);
  out.packed_piece = static_cast<uint64_t>(column_panel * p.k) * sizeof(float);
  out.packed_input = b;
  out.pack = isa().pack_b;
  out.packing = isa().packing_of_b;
}

// Whether a large B is read along its rows, in strips of columns.
bool suits_strips(const Product& p) {
  return is_packed_here(p) && is_large(p) && p.a_column == 1 && p.b_column == 1 && !p.chain && !p.sums &&
         p.m >= kLeastStripRows && p.n >= least_strip(p);
}
void answer_strips(std::unique_ptr<OwnedGrid> grid, double nanoseconds, hx_kernel& out) {
  auto c = std::make_unique<StripContext>();
  const Product& p = c->product = grid->product;
  const uint32_t wanted = parts_for(nanoseconds, INT32_MAX, kPackedGrain);
  c->depth_parts = depth_parts_of(p, wanted);
  const int64_t least = least_strip(p);
  while (c->depth_parts * c->column_parts < wanted && p.n >= 2 * least * c->column_parts) c->column_parts *= 2;
  c->part_floats = p.m * kRowsInPlaceStride + packed_column_panel(isa().vector) * kPackedDepth;
  const uint32_t parts = c->depth_parts * c->column_parts;
  const int64_t floats = parts * c->part_floats + (c->depth_parts - 1) * p.m * p.n;
  std::vector<uint32_t> phases{parts};
  if (c->depth_parts > 1) phases.push_back(c->sum_parts = parts_of_sum(p));
  answer(out, std::move(c), isa().strip_matmul, "matmul by strips", phases).workspace =
      static_cast<uint64_t>(floats) * sizeof(float);
}

double flops_of(const Product& p) {
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}
bool suits_bf16(const Product& p) { return suits_bf16_product(p, flops_of(p)); }
bool is_rounded(const Product& p) { return suits_bf16(p) || suits_half_product(p, flops_of(p)); }
bool is_small(const Product& p, double flops) { return std::min(p.m, p.n) <= kSmallSide || flops < kSmallFlops; }
bool broadcasts(const Product& p) { return p.b_column == 1; }
bool is_inner(const Product& p) { return p.b_row == 1 && p.a_column == 1; }

bool suits_small(const Product& p) {
  return (broadcasts(p) || is_inner(p)) && (p.invariant || is_small(p, flops_of(p)));
}
double small_nanoseconds(const Product& p) {
  const double moved = kMoveNanoseconds * static_cast<double>(p.n * p.k + p.m * p.k + p.m * p.n);
  return static_cast<double>(p.batch) * std::max(flops_of(p) / kSmallRate, moved);
}
void answer_small(std::unique_ptr<OwnedGrid> c, double nanoseconds, hx_kernel& out) {
  const Product& p = c->product;
  // The rows of the batch are the rows of A, or the depth of a weight gradient.
  cut(*c, std::max(parts_for(nanoseconds, INT32_MAX), parts_for_rows(nanoseconds, p.a_column == 1 ? p.m : p.k)));
  const uint32_t parts = c->batch_parts * c->row_parts * c->column_parts;
  const char* name = is_inner(p) && !broadcasts(p) ? "inner products" : "small matmul";
  answer<MatmulContext>(out, std::move(c), isa().small_matmul, name, {parts});
}

double packed_nanoseconds(const Product& p) { return flops_of(p) / kPackedRate; }
double library_nanoseconds(const Product& p) { return static_cast<double>(p.batch) * flops_of(p) / kLibraryRate; }
void answer_library(std::unique_ptr<OwnedGrid> c, double nanoseconds, hx_kernel& out) {
  cut(*c, parts_for(nanoseconds, INT32_MAX, kLibraryGrain));
  answer_onednn_matmul(*c, out);
}

// An implementation of products. Routes are in order of preference: the first that applies is used.
struct Route {
  enum Features { none, invariant = 1, descends = 2 };  // of Product
  unsigned features;
  bool (*applies)(const Product&);
  double (*nanoseconds)(const Product&);  // estimated, on one thread
  void (*answer)(std::unique_ptr<OwnedGrid>, double nanoseconds, hx_kernel&);
};
constexpr Route kRoutes[] = {
    {Route::invariant, suits_small, small_nanoseconds, answer_small},
    {Route::none, suits_bf16, [](const Product& p) { return flops_of(p) / kBf16Rate; },
     [](std::unique_ptr<OwnedGrid> c, double, hx_kernel& out) {
       answer_bf16_product(c->product, flops_of(c->product), out);
     }},
    {Route::none, [](const Product& p) { return suits_half_product(p, flops_of(p)); },
     [](const Product& p) { return flops_of(p) / kHalfRate; },
     [](std::unique_ptr<OwnedGrid> c, double, hx_kernel& out) {
       answer_half_product(c->product, flops_of(c->product), out);
     }},
    {Route::none, [](const Product& p) { return broadcasts(p) && p.k < kLeastPackedDepth; }, small_nanoseconds,
     answer_small},
    {Route::descends, [](const Product& p) { return is_packed_here(p) && is_by_depth(p); }, packed_nanoseconds,
     answer_by_depth},
    {Route::none, suits_turned, packed_nanoseconds, answer_turned},
    {Route::descends, [](const Product& p) { return is_packed_here(p) && suits_own_blocks(p); }, packed_nanoseconds,
     answer_own_blocks},
    {Route::none, suits_strips, packed_nanoseconds, answer_strips},
    {Route::descends, is_packed_here, packed_nanoseconds, answer_packed},
    {Route::none, [](const Product&) { return true; }, library_nanoseconds, answer_library},
};
bool serves(const Route& route, const Product& p) {
  return (!p.invariant || route.features & Route::invariant) && (!p.descends || route.features & Route::descends);
}

}  // namespace

uint32_t parts_of_sum(const Product& p) { return parts_for(static_cast<double>(p.m * p.n) * 0.3, p.m, 1000); }

bool answer_product(const Product& product, std::vector<int64_t> a_offsets, std::vector<int64_t> b_offsets,
                    hx_kernel& out) {
  hx_kernel dense{};
  Product numbers = product;
  numbers.scale = 0;
  if (!answer_dense_product(numbers, std::move(a_offsets), std::move(b_offsets), dense)) return false;
  const bool looks = !product.invariant && !suits_bf16(numbers) && answer_sparse_product(product, dense, out);
  if (!looks && product.scale == 0) return out = dense, true;
  if (dense.destroy) dense.destroy(dense.context);  // unused: with few rows the sparse kernel is always chosen
  return looks;
}

bool answer_rounded_product(const Product& p, hx_kernel& out) {
  if (suits_bf16(p)) return answer_bf16_product(p, flops_of(p), out), true;
  if (suits_half_product(p, flops_of(p))) return answer_half_product(p, flops_of(p), out), true;
  return false;
}

bool answer_summed_product(const Product& product, hx_kernel& out) {
  const bool suits = is_packed_here(product) && suits_own_blocks(product) && !is_rounded(product);
  return suits && answer_product(product, {0}, {0}, out);
}

// Only products whose result exceeds the L2 cache; these have a single slice of the depth.
bool answer_finished_product(const Product& p, hx_kernel& out) {
  constexpr int64_t kLeastResults = int64_t{1} << 18;
  const bool suits = is_packed_here(p) && p.a_column == 1 && p.m >= kManyRows && p.m * p.n >= kLeastResults;
  return suits && answer_product(p, {0}, {0}, out);
}

// Returns false if an operand has no unit stride, or if the fused SGD update is unsupported.
bool answer_dense_product(const Product& product, std::vector<int64_t> a_offsets, std::vector<int64_t> b_offsets,
                          hx_kernel& out) {
  auto c = std::make_unique<OwnedGrid>();
  c->product = product;
  Product& p = c->product;
  c->a_storage = std::move(a_offsets);
  c->b_storage = std::move(b_offsets);
  c->a_offsets = c->a_storage.data();
  c->b_offsets = c->b_storage.data();
  // An axis of size 1 can take any stride.
  if (p.k == 1) p.a_column = 1, p.b_row = p.b_column == 1 ? p.n : 1;
  if (p.n == 1 && p.b_row != 1) p.b_column = 1;
  if (p.m == 1 && p.a_column != 1) p.a_row = 1;
  if ((p.a_row != 1 && p.a_column != 1) || (p.b_row != 1 && p.b_column != 1)) return false;
  if (p.descends && (is_rounded(p) || is_small(p, flops_of(p)))) return false;
  for (const Route& route : kRoutes)
    if (serves(route, p) && route.applies(p)) return route.answer(std::move(c), route.nanoseconds(p), out), true;
  return false;
}

bool activation_of(const Site& site, int& activation) {
  const std::string name = site.text("activation");
  const std::pair<const char*, int> rows[] = {
      {"", kNone}, {"relu", kRelu}, {"tanh", kTanh}, {"logistic", kLogistic}, {"gelu", kGelu}};
  for (const auto& [text, value] : rows)
    if (name == text) return activation = value, true;
  return false;
}

bool plan_linear(const Site& site, hx_kernel& out) {
  if (kernels::sum_type(site, site.in(0).dtype, site.in(1).dtype) != HX_F32) return declined("sums in f32");
  if (!is_f32(site.in(1))) return plan_typed_linear(site, out);
  Product p{};
  if (!activation_of(site, p.activation)) return false;
  const auto scale = site.scale_of(0);
  if (!scale) return false;
  p.scale = *scale;
  p.k = last(site.in(0));
  p.m = count(site.in(0)) / p.k;
  const bool transposed = site.flag("transposed");
  p.n = site.in(1).dims[transposed];
  p.batch = 1;
  p.a_row = p.k;
  p.a_column = 1;
  p.b_row = transposed ? p.n : 1;
  p.b_column = transposed ? 1 : p.k;
  p.b = 1;
  p.has_bias = site.inputs() == 3;
  p.invariant = site.flag("batch_invariant");
  p.half = site.allows_half() && !p.invariant;
  p.bf16 = site.allows_bf16() && !p.invariant;
  p.constant_b = site.is_constant(1);
  p.cold_b = !p.constant_b && site.is_cold();
  p.bias = 2;
  p.c = site.inputs();
  return answer_product(p, {0}, {0}, out);
}

}  // namespace harmonics::cpu
