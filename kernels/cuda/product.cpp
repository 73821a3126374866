// Plans dot and linear with any batch and contraction axes, as batched matrix products.
#include "product.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

#include "families.hpp"
#include "kernels/shared/dot_operand.hpp"

namespace harmonics::cuda {
namespace {

using kernels::Run;
using kernels::run_of;

// Adds the native tiled kernel, for types that cuBLASLt does not support or if it is missing.
bool add_own_product(Work& work, const Product& p) {
  const Function function = product_function(p.dtype);
  if (!function || p.batch > kMostBlocks || p.m / kProductTile >= kMostBlocks) return false;
  const Walk batch{{p.batch}, {{p.a_batch}, {p.b_batch}}, {0, 0}};
  const auto tiles = [](int64_t n) { return static_cast<uint32_t>((n + kProductTile - 1) / kProductTile); };
  work.launch(function, {tiles(p.n), tiles(p.m), static_cast<uint32_t>(p.batch), kThreads}, {p.a, p.b, p.c},
              ProductParameters{static_cast<uint32_t>(p.m), static_cast<uint32_t>(p.n), static_cast<uint32_t>(p.k),
                                p.a_row, p.a_column, p.b_row, p.b_column, steps<2>(batch)});
  return true;
}

// The tile of a small product and the number of parts of its k dimension (split-k), with the least estimated time.
struct SmallWay {
  uint32_t tile = 0, parts = 1, terms = 0;
};
SmallWay small_way(const Product& p, int64_t units) {
  // Measured nanoseconds: of a block for 64 terms, alone on a multiprocessor and beside another block; of a launch.
  constexpr double kAlone[] = {560, 1200, 1800, 3000}, kBeside[] = {420, 1020, 1580, 2700}, kLaunch = 2000;
  constexpr int64_t kLeastTerms = 128, kMostParts = 16;
  double least = 0;
  SmallWay best;
  for (uint32_t tile = 0; tile < std::size(kSmallTiles); ++tile) {
    const int64_t rows = kSmallTiles[tile][0], columns = kSmallTiles[tile][1];
    const int64_t tiles = p.batch * ((p.m + rows - 1) / rows) * ((p.n + columns - 1) / columns);
    for (int64_t parts = 1; parts <= kMostParts && (parts == 1 || p.k >= parts * kLeastTerms); ++parts) {
      if (parts > 1 && p.batch > 1) break;
      const int64_t runs = (p.k + parts * kSmallTerms - 1) / (parts * kSmallTerms);
      const int64_t turns = (tiles * parts + units - 1) / units;
      const double block = static_cast<double>(runs) * (turns > 1 ? kBeside : kAlone)[tile];
      const double time = static_cast<double>(turns) * block + (parts > 1 ? 2 * kLaunch : kLaunch);
      if (least > 0 && time >= least) continue;
      least = time;
      best = {tile, static_cast<uint32_t>((p.k + runs * kSmallTerms - 1) / (runs * kSmallTerms)),
              static_cast<uint32_t>(runs) * kSmallTerms};
    }
  }
  return best;
}

// Adds a kernel with small tiles for exact f32, if the tiles of cuBLASLt would not occupy the GPU and the product is
// latency-bound.
bool add_small_product(const Site& site, Work& work, const Product& p) {
  constexpr int64_t kRows = 128, kColumns = 64, kMost = 21'000'000;  // cuBLASLt's tiles; multiplications
  const auto parts = [](int64_t n, int64_t of) { return (n + of - 1) / of; };
  const int64_t units = site.machine().facts().units;
  const bool suits = p.dtype == HX_F32 && p.rounding == Rounding::none;
  if (!suits || (p.sum != Product::Sum::none && p.batch > 1) || p.m * p.n > kMost / (p.batch * p.k) ||
      p.batch * parts(p.m, kRows) * parts(p.n, kColumns) >= units)
    return false;
  const SmallWay way = small_way(p, units);
  const bool joins = way.parts > 1;
  SmallProductParameters s{};
  s.m = static_cast<uint32_t>(p.m), s.n = static_cast<uint32_t>(p.n), s.k = static_cast<uint32_t>(p.k);
  s.parts = way.parts, s.terms = way.terms;
  const auto operand = [&](int64_t rows, int64_t row, int64_t term, int64_t batch) {
    // The host aligns operands to 64 bytes.
    const bool wide = term == 1 && p.k % 4 == 0 && (row % 4 == 0 || rows == 1) && (batch % 4 == 0 || p.batch == 1);
    return SmallOperand{row, term, p.batch > 1 ? batch : 0, wide};
  };
  s.a = operand(p.m, p.a_row, p.a_column, p.a_batch), s.b = operand(p.n, p.b_column, p.b_row, p.b_batch);
  s.has_bias = p.has_bias && !joins, s.relu = p.relu && !joins;
  const SmallSum sum = p.sum == Product::Sum::a ? SmallSum::a : p.sum == Product::Sum::b ? SmallSum::b : SmallSum::none;
  const auto tiles = [&](int64_t n, size_t side) {
    return static_cast<uint32_t>(parts(n, kSmallTiles[way.tile][side]));
  };
  const Grid grid{tiles(p.n, 1), tiles(p.m, 0), joins ? way.parts : static_cast<uint32_t>(p.batch), kThreads};
  const Operand beside = p.has_bias || sum != SmallSum::none ? p.bias : p.c;
  const Function function = small_product_function(way.tile, sum);
  if (!joins) {
    work.launch(function, grid, {p.a, p.b, p.c, beside, beside}, s);
    return true;
  }
  const auto n = static_cast<uint32_t>(p.m * p.n), sums = sum == SmallSum::a ? s.m : sum == SmallSum::b ? s.n : 0;
  const Operand of_c = work.take_workspace(site, uint64_t{n} * way.parts * sizeof(float));
  const Operand of_sums = work.take_workspace(site, uint64_t{sums} * way.parts * sizeof(float));
  work.launch(function, grid, {p.a, p.b, of_c, of_c, of_sums}, s);
  work.over(int64_t{n} + sums, small_join_function(), {of_c, of_sums, beside, p.c, beside},
            SmallJoinParameters{n, s.n, sums, way.parts, p.has_bias, p.relu});
  return true;
}

void finish(Work& work, const Product& p, Activation activation, bool adds_bias) {
  if (activation == Activation::none && !adds_bias) return;
  const auto n = static_cast<uint32_t>(p.batch * p.m * p.n);
  work.over(n, finish_function(HX_F32), {adds_bias ? p.bias : p.c, p.c},
            FinishParameters{n, static_cast<uint32_t>(p.n), 1, activation, adds_bias});
}

// Adds a cuBLASLt step, after rounding the operands if necessary.
bool add_lt_product(const Site& site, Work& work, Product p, std::string& why) {
  constexpr int64_t kSuits = 16;  // fp8: k must be a multiple of 16 bytes
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

// Returns the allowed roundings, coarsest first. Products with batch axes keep the precision of TF32: they occur in
// attention, whose gradient recomputes scores that must match the forward pass.
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

// Plans the product with as much of the epilogue as cuBLASLt supports.
bool answer_product(const Site& site, Work work, Product p, bool has_bias, Activation activation, hx_kernel& out) {
  std::string why;
  for (const Rounding rounding : roundings(site, p.dtype)) {
    const bool alone = rounding == Rounding::fp8;  // no epilogue: cuBLASLt requires bf16 biases for fp8
    p.rounding = rounding;
    p.relu = !alone && activation == Activation::relu;
    p.has_bias = !alone && has_bias;
    if (add_small_product(site, work, p)) {
      if (!p.relu) finish(work, p, activation, false);
      answer(out, std::move(work), "product in small tiles");
      return true;
    }
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

// Returns a dot as a matrix product.
std::optional<Product> product_of(const Site& site, Work& work) {
  if (site.in(0).dtype != site.in(1).dtype || site.in(0).dtype != site.out().dtype) {
    declined("multiplies operands of one type");
    return std::nullopt;
  }
  if (site.in(0).dtype != HX_F64 && kernels::sum_type(site, HX_F32, HX_F32) != HX_F32) {
    declined("sums in f32");
    return std::nullopt;
  }
  auto operands = kernels::dot_operands(site, 0);
  Operand places[] = {{0}, {1}};
  for (uint32_t i = 0; i < 2; ++i) {
    kernels::DotOperand& o = operands[i];
    if (run_of(o.type, o.batch) && o.is_matrix()) continue;
    Walk walk = o.rearrange();
    places[i] = work.take_workspace(site, bytes_of(o.type));
    copy_along(work, width(o.type.dtype), {i}, places[i], std::move(walk));
  }
  const auto& [a, b] = operands;
  const Run m = *run_of(a.type, a.free), ka = *run_of(a.type, a.contract), ba = *run_of(a.type, a.batch);
  const Run n = *run_of(b.type, b.free), kb = *run_of(b.type, b.contract), bb = *run_of(b.type, b.batch);
  Product p;
  p.batch = ba.size;
  p.m = m.size, p.n = n.size, p.k = ka.size;
  p.a_row = m.stride, p.a_column = ka.stride, p.a_batch = ba.stride;
  p.b_row = kb.stride, p.b_column = n.stride, p.b_batch = bb.stride;
  p.dtype = site.in(0).dtype;
  p.a = places[0], p.b = places[1], p.c = {2};
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
    if (rounding == Rounding::fp8) continue;  // the sums would contain the scale
    p->rounding = rounding;
    if (add_small_product(site, work, *p)) {
      answer(out, std::move(work), "product and sum in small tiles");
      return true;
    }
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
  if (kernels::quantises_rows(site)) return declined("does not quantise x");
  if (kernels::sum_type(site, x.dtype, weight.dtype) != HX_F32) return declined("sums in f32");
  const bool transposed = site.flag("transposed");
  Product p;
  p.k = last(x), p.m = count(x) / p.k, p.n = last(site.out());
  p.a_row = p.k, p.a_column = 1;
  p.b_row = transposed ? weight.dims[1] : 1, p.b_column = transposed ? 1 : p.k;
  p.a = {0}, p.b = {1}, p.c = {site.inputs()}, p.bias = {2};
  return answer_product(site, Work(site.machine()), p, site.inputs() == 3, activation, out);
}

HM_PLANS(product, {"dot", plan_dot}, {"dot_sum", plan_dot_sum}, {"linear", plan_linear})

}  // namespace harmonics::cuda
