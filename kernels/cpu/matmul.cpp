#include "matmul.hpp"

#include <utility>

#include "families.hpp"
#include "onednn/matmul.hpp"

namespace harmonics::cpu {
namespace {

// The grid of parts: batches first, then rows and columns so that as little as possible is read twice.
void cut(MatmulContext& c, double nanoseconds, double grain) {
  const Product& p = c.product;
  const uint32_t all = parts_for(nanoseconds, INT32_MAX, grain);
  c.batch_parts = static_cast<uint32_t>(std::min<int64_t>(all, p.batch));
  const uint32_t wanted = all / c.batch_parts;
  c.row_parts = c.column_parts = 1;
  double least = 1e300;
  for (uint32_t r = 1; r <= wanted; r *= 2) {
    const uint32_t columns = wanted / r;
    const double read = static_cast<double>(r * p.n) + static_cast<double>(columns * p.m);
    if (p.m < r * kRowGranule || p.n < columns * kColumnGranule || read >= least) continue;
    c.row_parts = r;
    c.column_parts = columns;
    least = read;
  }
}

// Where our own packing beats oneDNN's: with AVX2, 85 of 104 GFLOP/s against 62.
bool is_packed_here(const Product& p) {
  return std::string_view(isa().name) == "avx2" && p.batch == 1 && p.a_row == 1 && p.b_column == 1 && p.m >= 48 && p.n >= 64 &&
         p.k >= 64 && !p.has_bias && !p.activation;
}

}  // namespace

bool answer_product(const Product& product, std::vector<int64_t> a_offsets, std::vector<int64_t> b_offsets,
                    hx_kernel& out) {
  hx_kernel dense{};
  if (!answer_dense_product(product, std::move(a_offsets), std::move(b_offsets), dense)) return false;
  if (!answer_sparse_product(product, dense, out)) out = dense;
  else if (dense.destroy) dense.destroy(dense.context);  // not taken over: few rows need no other way
  return true;
}

// Declined when a matrix is contiguous neither along its rows nor along its columns.
bool answer_dense_product(const Product& product, std::vector<int64_t> a_offsets, std::vector<int64_t> b_offsets,
                    hx_kernel& out) {
  struct Owned : MatmulContext {
    std::vector<int64_t> a_storage, b_storage;
  };
  auto c = std::make_unique<Owned>();
  c->product = product;
  Product& p = c->product;
  c->a_storage = std::move(a_offsets);
  c->b_storage = std::move(b_offsets);
  c->a_offsets = c->a_storage.data();
  c->b_offsets = c->b_storage.data();
  // An axis of one element has any stride.
  if (p.k == 1) p.a_column = 1, p.b_row = p.b_column == 1 ? p.n : 1;
  if (p.n == 1 && p.b_row != 1) p.b_column = 1;
  if (p.m == 1 && p.a_column != 1) p.a_row = 1;
  if ((p.a_row != 1 && p.a_column != 1) || (p.b_row != 1 && p.b_column != 1)) return false;

  const bool broadcasts = p.b_column == 1, inner = p.b_row == 1 && p.a_column == 1;
  const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const bool small = std::min(p.m, p.n) <= 12 || flops < 1e5;
  const double batch = static_cast<double>(p.batch);
  if (small && (broadcasts || inner)) {
    const double moved = 0.1 * static_cast<double>(p.n * p.k + p.m * p.k + p.m * p.n);
    cut(*c, batch * std::max(flops / 75, moved), kGrain);
    const uint32_t parts = c->batch_parts * c->row_parts * c->column_parts;
    answer<MatmulContext>(out, std::move(c), isa().small_matmul,
                          inner && !broadcasts ? "inner products" : "small matmul", {parts});
    return true;
  }
  if (p.half && answer_half_product(p, out)) return true;
  if (is_packed_here(p)) {
    cut(*c, flops / 85, 200000);  // a part packs for itself, which small parts would do too often
    const uint32_t parts = c->row_parts * c->column_parts;
    answer<MatmulContext>(out, std::move(c), isa().packed_matmul, "packed matmul", {parts}).workspace =
        parts * static_cast<uint64_t>(kPackedFloats) * sizeof(float);
    return true;
  }
  cut(*c, batch * flops / 85, 40000);
  answer_onednn_matmul(*c, out);
  return true;
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
  Product p{};
  if (!site.all_f32() || !activation_of(site, p.activation)) return false;
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
  p.half = site.allows_half();
  p.bias = 2;
  p.c = site.inputs();
  return answer_product(p, {0}, {0}, out);
}

}  // namespace harmonics::cpu
