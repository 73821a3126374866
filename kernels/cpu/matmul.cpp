#include "matmul.hpp"

#include <functional>
#include <utility>

#include "families.hpp"
#include "onednn/matmul.hpp"
#include "product_costs.hpp"
#include "rounded_product.hpp"
#include "routes.hpp"

namespace harmonics::cpu {

using namespace product_costs;

namespace {

// Returns the size of the largest slice, in whole granules, relative to the average.
double imbalance(int64_t length, int64_t granule, uint32_t parts) {
  int64_t most = 0;
  for (uint32_t i = 0; i < parts; ++i)
    most = std::max(
        most, panels(slice_begin(length, granule, parts, i + 1) - slice_begin(length, granule, parts, i), granule));
  return static_cast<double>(most * granule * parts) / static_cast<double>(length);
}

bool is_rounded(const Product& p) { return rounding_of(p) != nullptr; }
bool pays_to_look(const Product& p) { return !rounding_of(p) || rounding_of(p)->most_nonzeros > 0; }
double library_nanoseconds(const Product& p) { return static_cast<double>(p.batch) * flops_of(p) / kLibraryRate; }
void answer_library(std::unique_ptr<OwnedGrid> c, double nanoseconds, hx_kernel& out) {
  cut_grid(*c, parts_for(nanoseconds, INT32_MAX, kLibraryGrain));
  answer_onednn_matmul(*c, out);
}

bool serves(const Route& route, const Product& p) {
  return (!p.invariant || route.features & Route::invariant) && (!p.descends || route.features & Route::descends);
}

constexpr std::reference_wrapper<const Route> kRoutes[] = {
#define HM_ROUTE(name) routes::name,
#include "routes.inc"
#undef HM_ROUTE
};

}  // namespace

constinit const Route routes::rounded{Route::none, is_rounded,
                                      [](const Product& p) { return flops_of(p) / rounding_of(p)->rate; },
                                      [](std::unique_ptr<OwnedGrid> c, double, hx_kernel& out) {
                                        answer_rounded(c->product, *rounding_of(c->product), out);
                                      }};
constinit const Route routes::library{Route::none, [](const Product&) { return true; }, library_nanoseconds,
                                      answer_library};

double flops_of(const Product& p) {
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}
double packed_nanoseconds(const Product& p) { return flops_of(p) / kPackedRate; }

bool is_small(const Product& p, double flops) { return std::min(p.m, p.n) <= kSmallSide || flops < kSmallFlops; }

bool is_large(const Product& p) {
  constexpr int64_t kLargeColdFloats = int64_t{1} << 16;  // of a B that no L2 cache holds from step to step
  return p.k * p.n >= (p.cold_b ? kLargeColdFloats : kLargeFloats) && p.m < kManyRows;
}

bool is_packed_here(const Product& p) {
  return isa().vector >= 8 && p.batch == 1 && p.m > kSmallSide && p.n >= 64 && p.k >= kLeastPackedDepth;
}

void cut_grid(MatmulContext& c, uint32_t all) {
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

bool is_cut_by_columns(const Product& p, uint32_t parts) {
  if (p.a_column == 1) return p.n >= p.m;
  const int64_t rows = packed_row_panel(isa().vector), columns = packed_column_panel(isa().vector);
  return imbalance(p.n, columns / 2, parts) <= imbalance(p.m, rows, parts) + 0.05;
}

uint32_t depth_parts_of(const Product& p, uint32_t parts) {
  const int64_t narrowest = 16 * static_cast<int64_t>(std::min(parts, kMostSums));
  const bool suits = parts > 1 && narrowest <= p.n && p.n < p.k && p.a_column == 1 && !p.descends && !p.accumulate;
  return suits && is_cut_by_columns(p, parts) ? 2 : 1;
}

uint32_t parts_of_sum(const Product& p) { return parts_for(static_cast<double>(p.m * p.n) * 0.3, p.m, 1000); }

bool answer_product(const Product& product, std::vector<int64_t> a_offsets, std::vector<int64_t> b_offsets,
                    hx_kernel& out) {
  hx_kernel dense{};
  Product numbers = product;
  numbers.scale = 0;
  if (!answer_dense_product(numbers, std::move(a_offsets), std::move(b_offsets), dense)) return false;
  const bool looks = !product.invariant && pays_to_look(numbers) && answer_sparse_product(product, dense, out);
  if (!looks && product.scale == 0) return out = dense, true;
  if (dense.destroy) dense.destroy(dense.context);  // unused: with few rows the sparse kernel is always chosen
  return looks;
}

bool answer_rounded_product(const Product& p, hx_kernel& out) {
  const RoundedRoutines* const rounding = rounding_of(p);
  if (rounding) answer_rounded(p, *rounding, out);
  return rounding != nullptr;
}

bool answer_summed_product(const Product& product, hx_kernel& out) {
  const bool suits = routes::own_blocks.applies(product) && !is_rounded(product);
  return suits && answer_product(product, {0}, {0}, out);
}

// Only products whose result exceeds the L2 cache.
bool answer_finished_product(const Product& p, hx_kernel& out) {
  constexpr int64_t kLeastResults = int64_t{1} << 18;
  const bool suits = is_packed_here(p) && p.a_column == 1 && p.m * p.n >= kLeastResults &&
                     (p.m >= kManyRows || routes::strips.applies(p));
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
