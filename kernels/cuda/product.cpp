// Plans dot and linear: any batch and contraction axes, rewritten as a batched matrix product.
#include "product.hpp"

#include <numeric>
#include <optional>

#include "families.hpp"

namespace harmonics::cuda {
namespace {

// Several axes merged into one: size and stride.
struct Run {
  int64_t size = 1, stride = 1;
};
std::optional<Run> join(const hx_type& t, const std::vector<int64_t>& axes) {
  const auto own = strides(t);
  std::optional<Run> run;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const auto a = static_cast<size_t>(*axis);
    if (t.dims[a] == 1) continue;
    if (!run)
      run = Run{t.dims[a], own[a]};
    else if (own[a] == run->stride * run->size)
      run->size *= t.dims[a];
    else
      return std::nullopt;
  }
  return run ? run : Run{};
}

// An operand's axes: batch, free, contracted.
struct Side {
  hx_type type;
  Operand place;
  std::vector<int64_t> batch, free, contract;

  void find_free() {
    for (int64_t i = 0; i < type.rank; ++i)
      if (std::find(batch.begin(), batch.end(), i) == batch.end() &&
          std::find(contract.begin(), contract.end(), i) == contract.end())
        free.push_back(i);
  }
  bool is_matrix() const {
    const auto f = join(type, free), k = join(type, contract);
    return join(type, batch) && f && k && (f->stride == 1 || k->stride == 1 || f->size == 1 || k->size == 1);
  }
  // Copies the operand to [batch..., free..., contract...] in the workspace.
  void rearrange(const Site& site, Work& work) {
    std::vector<int64_t> order = batch;
    order.insert(order.end(), free.begin(), free.end());
    order.insert(order.end(), contract.begin(), contract.end());
    const auto own = strides(type);
    const hx_type before = type;
    Walk walk{{}, {{}, {}}, {0, 0}};
    for (uint32_t i = 0; i < type.rank; ++i) {
      type.dims[i] = before.dims[order[i]];
      walk.strides[1].push_back(own[static_cast<size_t>(order[i])]);
    }
    walk.sizes = dims(type);
    walk.strides[0] = strides(type);
    const Operand to = work.take_workspace(site, bytes_of(type));
    copy_along(work, width(type.dtype), place, to, std::move(walk));
    place = to;
    int64_t next = 0;
    for (auto* axes : {&batch, &free, &contract})
      for (int64_t& axis : *axes) axis = next++;
  }
};

// Uses our tiled kernel where cuBLASLt is missing or does not support the type.
bool add_own_product(Work& work, const Product& p) {
  const Function function = product_function(p.dtype);
  if (!function || p.batch > kMostBlocks || p.m / kProductTile >= kMostBlocks) return false;
  const Walk batch{{p.batch}, {{p.a_batch}, {p.b_batch}}, {0, 0}};
  const auto tiles = [](int64_t n) { return static_cast<uint32_t>((n + kProductTile - 1) / kProductTile); };
  work.launch(function, {tiles(p.n), tiles(p.m), static_cast<uint32_t>(p.batch), kThreads}, {p.a, p.b, p.c},
              ProductParameters{static_cast<uint32_t>(p.m), static_cast<uint32_t>(p.n), static_cast<uint32_t>(p.k),
                                p.a_row, p.a_column, p.b_row, p.b_column, batch.steps<2>()});
  return true;
}

void finish(Work& work, const Product& p, Activation activation, bool adds_bias) {
  if (activation == Activation::none && !adds_bias) return;
  const auto n = static_cast<uint32_t>(p.batch * p.m * p.n);
  work.over(n, finish_function(HX_F32), {adds_bias ? p.bias : p.c, p.c},
            FinishParameters{n, static_cast<uint32_t>(p.n), 1, activation, adds_bias});
}

// Uses cuBLASLt, with operands rounded first if required.
bool add_lt_product(const Site& site, Work& work, Product p, std::string& why) {
  constexpr int64_t kSuits = 16;  // fp8: contracted size in multiples of 16 bytes
  const Product given = p;
  uint64_t at = work.workspace();
  const auto room = [&](int64_t bytes) {
    const Operand o{site.workspace(), at};
    at += (static_cast<uint64_t>(bytes) + 255) / 256 * 256;
    return o;
  };
  const int64_t a_count = p.batch * p.m * p.k, b_count = p.batch * p.k * p.n;
  Operand parts_a, parts_b;
  if (p.rounding == Rounding::bf16) {
    p.a = room(2 * a_count), p.b = room(2 * b_count);
  } else if (p.rounding == Rounding::fp8) {
    if (p.k % kSuits || p.batch > kMostBlocks || std::max(p.m, p.n) / kRoundedTile >= kMostBlocks)
      return why = "does not suit fp8", false;
    parts_a = room(kLargestParts * 4), parts_b = room(kLargestParts * 4);
    p.a = room(a_count), p.b = room(b_count), p.scale_a = room(4), p.scale_b = room(4);
    p.a_row = p.k, p.a_column = 1, p.a_batch = p.m * p.k;
    p.b_row = 1, p.b_column = p.k, p.b_batch = p.n * p.k;
  }
  auto step = lt_step(site.machine(), p, at, site.workspace(), why);
  if (!step) return false;
  work.take_workspace(site, at - work.workspace());
  if (p.rounding == Rounding::bf16) {
    work.over(a_count, round_function(HX_BF16), {given.a, p.a}, RoundParameters{static_cast<uint32_t>(a_count)});
    work.over(b_count, round_function(HX_BF16), {given.b, p.b}, RoundParameters{static_cast<uint32_t>(b_count)});
  } else if (p.rounding == Rounding::fp8) {
    const auto scaled = [&](const Operand& from, const Operand& parts, const Operand& to, const Operand& scale,
                            const ScaledParameters& s) {
      const auto n = static_cast<uint32_t>(p.batch * s.rows * s.columns);
      const auto tiles = [](uint32_t size) { return (size + kRoundedTile - 1) / kRoundedTile; };
      work.launch(largest_function(), {kLargestParts, 1, 1, kThreads}, {from, parts}, RoundParameters{n});
      work.launch(round_scaled_function(), {tiles(s.columns), tiles(s.rows), static_cast<uint32_t>(p.batch), kThreads},
                  {from, parts, to, scale}, s);
    };
    const auto m = static_cast<uint32_t>(p.m), n = static_cast<uint32_t>(p.n), k = static_cast<uint32_t>(p.k);
    scaled(given.a, parts_a, p.a, p.scale_a, {m, k, given.a_row, given.a_column, given.a_batch});
    scaled(given.b, parts_b, p.b, p.scale_b, {n, k, given.b_column, given.b_row, given.b_batch});
  }
  work.add(std::move(step));
  return true;
}

// Allowed roundings, coarsest first. Products with batch axes occur in attention, whose gradient recomputes scores that
// must match their sums: they keep TF32's precision.
std::vector<Rounding> roundings(const Site& site, uint32_t dtype) {
  std::vector<Rounding> all;
  const bool rounds = dtype == HX_F32 && site.integers("lhs_batch").empty();
  if (rounds && site.may_round_to_fp8()) all.push_back(Rounding::fp8);
  if (rounds && site.may_round_to_bf16()) all.push_back(Rounding::bf16);
  all.push_back(dtype == HX_F32 && site.may_round() ? Rounding::tf32 : Rounding::none);
  return all;
}
const char* product_name(Rounding rounding) {
  return rounding == Rounding::bf16  ? "cuBLASLt product, bf16"
         : rounding == Rounding::fp8 ? "cuBLASLt product, fp8"
                                     : "cuBLASLt product";
}

// Plans the product, with as much of its epilogue as cuBLASLt supports.
bool answer_product(const Site& site, Work work, Product p, bool has_bias, Activation activation, hx_kernel& out) {
  std::string why;
  for (const Rounding rounding : roundings(site, p.dtype)) {
    const bool alone = rounding == Rounding::fp8;  // cuBLASLt's fp8 biases are bf16
    p.rounding = rounding;
    p.relu = !alone && activation == Activation::relu;
    p.has_bias = !alone && has_bias;
    if (!add_lt_product(site, work, p, why)) continue;
    if (!p.relu) finish(work, p, activation, has_bias && !p.has_bias);
    answer(out, std::move(work), product_name(rounding));
    return true;
  }
  if ((has_bias || activation != Activation::none) && p.dtype != HX_F32) return declined("adds a bias in f32");
  if (!add_own_product(work, p)) return declined(why);
  finish(work, p, activation, has_bias);
  answer(out, std::move(work), "tiled product");
  return true;
}

}  // namespace

namespace {

// Rewrites a dot as a matrix product.
std::optional<Product> product_of(const Site& site, Work& work) {
  const auto a_contract = site.integers("lhs_contract"), b_contract = site.integers("rhs_contract");
  if (site.in(0).dtype != site.in(1).dtype || site.in(0).dtype != site.out().dtype) {
    declined("multiplies operands of one type");
    return std::nullopt;
  }
  Side a{site.in(0), {0}, site.integers("lhs_batch"), {}, {}}, b{site.in(1), {1}, site.integers("rhs_batch"), {}, {}};
  // Contracted axes may be paired in any order; sorting by the left operand's makes contiguous runs likelier.
  std::vector<size_t> order(a_contract.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return a_contract[i] < a_contract[j]; });
  for (const size_t i : order) {
    a.contract.push_back(a_contract[i]);
    b.contract.push_back(b_contract[i]);
  }
  for (Side* side : {&a, &b}) {
    side->find_free();
    if (!side->is_matrix()) side->rearrange(site, work);
  }
  const Run m = *join(a.type, a.free), ka = *join(a.type, a.contract), ba = *join(a.type, a.batch);
  const Run n = *join(b.type, b.free), kb = *join(b.type, b.contract), bb = *join(b.type, b.batch);
  Product p;
  p.batch = ba.size;
  p.m = m.size, p.n = n.size, p.k = ka.size;
  p.a_row = m.stride, p.a_column = ka.stride, p.a_batch = ba.stride;
  p.b_row = kb.stride, p.b_column = n.stride, p.b_batch = bb.stride;
  p.dtype = site.in(0).dtype;
  p.a = a.place, p.b = b.place, p.c = {2};
  return p;
}

}  // namespace

bool plan_dot(const Site& site, hx_kernel& out) {
  Work work(site.machine());
  const std::optional<Product> p = product_of(site, work);
  return p && answer_product(site, std::move(work), *p, false, Activation::none, out);
}

bool plan_dot_sum(const Site& site, hx_kernel& out) {
  if (!site.all_f32()) return declined("sums f32 beside a product");
  Work work(site.machine());
  std::optional<Product> p = product_of(site, work);
  if (!p) return false;
  p->sum = site.integer("sum") == 0 ? Product::Sum::a : Product::Sum::b;
  p->bias = {3};
  std::string why;
  for (const Rounding rounding : roundings(site, HX_F32)) {
    if (rounding == Rounding::fp8) continue;  // the sums would have to be unscaled
    p->rounding = rounding;
    if (!add_lt_product(site, work, *p, why)) continue;
    answer(out, std::move(work),
           rounding == Rounding::bf16 ? "cuBLASLt product and sum, bf16" : "cuBLASLt product and sum");
    return true;
  }
  return declined(why);
}

bool activation_of(const Site& site, Activation& activation) {
  const std::string name = site.text("activation");
  activation = name.empty()                              ? Activation::none
               : name == "relu"                          ? Activation::relu
               : name == "tanh"                          ? Activation::tanh
               : name == "logistic" || name == "sigmoid" ? Activation::logistic
                                                         : Activation::gelu;
  return activation != Activation::gelu || name == "gelu" || declined("has no activation '" + name + "'");
}

bool plan_linear(const Site& site, hx_kernel& out) {
  const hx_type &x = site.in(0), &weight = site.in(1);
  Activation activation = Activation::none;
  if (!activation_of(site, activation)) return false;
  if (!site.all_f32()) return declined("maps f32");
  const bool transposed = site.flag("transposed");
  Product p;
  p.k = last(x), p.m = count(x) / p.k, p.n = last(site.out());
  p.a_row = p.k, p.a_column = 1;
  p.b_row = transposed ? weight.dims[1] : 1, p.b_column = transposed ? 1 : p.k;
  p.a = {0}, p.b = {1}, p.c = {site.inputs()}, p.bias = {2};
  return answer_product(site, Work(site.machine()), p, site.inputs() == 3, activation, out);
}

}  // namespace harmonics::cuda
