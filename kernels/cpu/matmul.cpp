#include "matmul.hpp"

#include <numeric>
#include <optional>

#include "families.hpp"
#include "onednn/matmul.hpp"

namespace harmonics::cpu {
namespace {

// Several axes taken as one index: its length and the distance between neighbours.
struct Joined {
  int64_t size = 1, stride = 1;
};
std::optional<Joined> join(const hx_type& t, const std::vector<int64_t>& axes) {
  const std::vector<int64_t> own = strides(t);
  std::optional<Joined> j;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const auto a = static_cast<size_t>(*axis);
    if (t.dims[a] == 1) continue;
    if (!j) j = Joined{t.dims[a], own[a]};
    else if (own[a] == j->stride * j->size) j->size *= t.dims[a];
    else return std::nullopt;
  }
  return j ? j : Joined{};
}

std::vector<int64_t> offsets_of(const hx_type& t, const std::vector<int64_t>& axes) {
  const std::vector<int64_t> own = strides(t);
  std::vector<int64_t> offsets{0};
  for (int64_t axis : axes) {
    std::vector<int64_t> next;
    for (int64_t o : offsets)
      for (int64_t i = 0; i < t.dims[axis]; ++i) next.push_back(o + i * own[static_cast<size_t>(axis)]);
    offsets = std::move(next);
  }
  return offsets;
}

std::vector<int64_t> remaining(const hx_type& t, const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < t.rank; ++i)
    if (std::find(a.begin(), a.end(), i) == a.end() && std::find(b.begin(), b.end(), i) == b.end()) axes.push_back(i);
  return axes;
}

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

bool answer_product(const Product& product, std::vector<int64_t> a_offsets, std::vector<int64_t> b_offsets, hx_kernel& out) {
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
  if (p.k == 1) p.b_row = p.n, p.a_column = 1;
  if (p.n == 1 && p.b_row != 1) p.b_column = 1;
  if (p.m == 1 && p.a_column != 1) p.a_row = 1;
  if ((p.a_row != 1 && p.a_column != 1) || (p.b_row != 1 && p.b_column != 1)) return false;

  const bool broadcasts = p.b_column == 1, inner = p.b_row == 1 && p.a_column == 1;
  const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const bool small = std::min(p.m, p.n) <= 12 || flops < 1e5;
  const double batch = static_cast<double>(p.batch);
  if (small && (broadcasts || inner)) {
    const double moved = 0.1 * static_cast<double>(p.n * p.k + p.m * p.k + p.m * p.n);
    cut(*c, batch * std::max(flops / 75, moved), 20000);
    const uint32_t parts = c->batch_parts * c->row_parts * c->column_parts;
    answer<MatmulContext>(out, std::move(c), isa().small_matmul, inner && !broadcasts ? "inner products" : "small matmul", {parts});
    return true;
  }
  cut(*c, batch * flops / 85, 40000);
  answer_onednn_matmul(*c, out);
  return true;
}

}  // namespace

bool plan_dot(const Site& site, hx_kernel& out) {
  if (!site.all_f32()) return false;
  const hx_type &a = site.in(0), &b = site.in(1);
  const auto a_contract = site.integers("lhs_contract"), b_contract = site.integers("rhs_contract");
  const auto a_batch = site.integers("lhs_batch"), b_batch = site.integers("rhs_batch");
  // Contracted axes may be paired in any order; sorted by the left's they are likelier to be one run in memory.
  std::vector<size_t> order(a_contract.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return a_contract[i] < a_contract[j]; });
  std::vector<int64_t> a_k, b_k;
  for (size_t i : order) a_k.push_back(a_contract[i]), b_k.push_back(b_contract[i]);

  const auto m = join(a, remaining(a, a_contract, a_batch)), ka = join(a, a_k);
  const auto n = join(b, remaining(b, b_contract, b_batch)), kb = join(b, b_k);
  if (!m || !ka || !n || !kb) return false;
  Product p{};
  p.m = m->size;
  p.n = n->size;
  p.k = ka->size;
  p.a_row = m->stride;
  p.a_column = ka->stride;
  p.b_row = kb->stride;
  p.b_column = n->stride;
  p.b = 1;
  p.c = 2;
  auto a_offsets = offsets_of(a, a_batch), b_offsets = offsets_of(b, b_batch);
  p.batch = static_cast<int64_t>(a_offsets.size());
  return answer_product(p, std::move(a_offsets), std::move(b_offsets), out);
}

bool activation_of(const Site& site, int& activation) {
  const std::string name = site.text("activation");
  const std::pair<const char*, int> rows[] = {{"", kNone}, {"relu", kRelu}, {"tanh", kTanh}, {"logistic", kLogistic}, {"gelu", kGelu}};
  for (const auto& [text, value] : rows)
    if (name == text) return activation = value, true;
  return false;
}

bool plan_linear(const Site& site, hx_kernel& out) {
  Product p{};
  if (!site.all_f32() || !activation_of(site, p.activation)) return false;
  p.k = last(site.in(0));
  p.m = count(site.in(0)) / p.k;
  p.n = site.in(1).dims[0];
  p.batch = 1;
  p.a_row = p.k;
  p.a_column = 1;
  p.b_row = 1;
  p.b_column = p.k;
  p.b = 1;
  p.has_bias = site.inputs() == 3;
  p.bias = 2;
  p.c = site.inputs();
  return answer_product(p, {0}, {0}, out);
}

}  // namespace harmonics::cpu
