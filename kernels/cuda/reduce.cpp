// Plans reductions over any axes. The order of summation depends only on shapes.
#include "chain_source.hpp"
#include "families.hpp"

namespace harmonics::cuda {
namespace {

const char* kNoType = "computes f32, f64, i32, i64 and u8";
const char* kNoReduction = "reduces floats, i32, i64 and u8";

// Division into chunks: enough blocks for the whole device, but a minimum of terms per chunk. Chunks of all types begin
// at multiples of 16 bytes.
constexpr int64_t kBusy = 1024, kShortRow = 512, kEven = 16;

struct Split {
  int64_t chunks = 1, chunk;
};
Split split(int64_t blocks, int64_t terms, int64_t least) {
  Split s{1, terms};
  s.chunks = std::clamp<int64_t>(kBusy / std::max<int64_t>(blocks, 1), 1, std::max<int64_t>(1, terms / least));
  s.chunk = ((terms + s.chunks - 1) / s.chunks + kEven - 1) / kEven * kEven;
  s.chunks = (terms + s.chunk - 1) / s.chunk;
  return s;
}

Reduction reduction_of(std::string_view op) {
  return op == "reduce_sum"    ? Reduction::sum
         : op == "reduce_prod" ? Reduction::product
         : op == "reduce_max"  ? Reduction::maximum
                               : Reduction::minimum;
}

}  // namespace

namespace {

uint32_t number(int64_t v) { return static_cast<uint32_t>(v); }
uint32_t blocks_of(int64_t n, uint32_t each) { return number((n + each - 1) / each); }

// Division of a reduction into one or two steps. It determines the bits of the results.
struct Division {
  Walk kept, reduced;
  int64_t results, terms;
  bool by_rows, is_short;
  Split split_;
  uint32_t pieces;  // type of partial results

  Division(const hx_type& whole, const std::vector<int64_t>& axes) {
    auto walks = kernels::reduction_walks(whole, axes);
    kept = std::move(walks.kept), reduced = std::move(walks.reduced);
    results = kept.count(), terms = reduced.count();
    // Coalesced reads: adjacent threads read adjacent terms of one sum, or the same term of adjacent sums.
    by_rows = terms > 1 && (kept.sizes.empty() || kept.strides[0].back() != 1);
    is_short = by_rows && terms <= kShortRow;
    split_ = is_short  ? Split{1, terms}
             : by_rows ? split(results, terms, 1024)
                       : split(blocks_of(results, kThreads), terms, 128);
    pieces = split_.chunks > 1 && is_half(whole.dtype) ? uint32_t{HX_F32} : whole.dtype;
  }
  bool fits() const { return by_rows || split_.chunks <= kMostBlocks || declined("too many terms for one sum"); }
  uint32_t lanes() const { return !by_rows ? 0 : is_short ? 32 : kThreads; }
  Grid grid() const {
    if (!by_rows) return {blocks_of(results, kThreads), number(split_.chunks), 1, kThreads};
    return {blocks_of(results * split_.chunks, kThreads / lanes()), 1, 1, kThreads};
  }
  Operand take_pieces(Work& work, const Site& site, Operand result) const {
    if (split_.chunks == 1) return result;
    return work.take_workspace(site, static_cast<uint64_t>(results * split_.chunks) * width(pieces));
  }
  ReduceParameters parameters() const {
    return {number(results),      number(terms),  number(split_.chunks),
            number(split_.chunk), steps<1>(kept), steps<1>(reduced)};
  }
  // Combines the partial results of the first step, if there are several per result.
  void join(Work& work, Operand from, Operand to, uint32_t dtype, Reduction rule) const {
    if (split_.chunks == 1) return;
    const Walk each{{results}, {{split_.chunks}}, {0}}, joined{{split_.chunks}, {{1}}, {0}};
    const ReduceParameters second{number(results),       number(split_.chunks), 1,
                                  number(split_.chunks), steps<1>(each),        steps<1>(joined)};
    if (by_rows)
      work.launch(reduce_short_rows_function(pieces, dtype, rule), {blocks_of(results, kThreads / 32), 1, 1, kThreads},
                  {from, to}, second);
    else
      work.launch(join_chunks_function(pieces, dtype, rule), {blocks_of(results, kJoinedResults), 1, 1, kThreads},
                  {from, to}, second);
  }
};

}  // namespace

bool plan_reduce(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const Reduction rule = reduction_of(site.op());
  if (!reduce_rows_function(x.dtype, x.dtype, rule)) return declined(kNoReduction);
  const Division d(x, site.integers("axes"));
  if (!d.fits()) return false;
  const Function function = !d.by_rows   ? reduce_columns_function(x.dtype, d.pieces, rule)
                            : d.is_short ? reduce_short_rows_function(x.dtype, d.pieces, rule)
                                         : reduce_rows_function(x.dtype, d.pieces, rule);
  Work work(site.machine());
  const Operand result{1}, pieces = d.take_pieces(work, site, result);
  work.launch(function, d.grid(), {{0}, pieces}, d.parameters());
  d.join(work, pieces, result, x.dtype, rule);
  answer(out, std::move(work), d.by_rows ? "reduce rows" : "reduce columns");
  return true;
}

// Stores all results of the chain except the last one, which is reduced as it is computed, in the order and with the
// bits of a reduction of the stored result.
bool plan_fused_reduce(const Site& site, hx_kernel& out) {
  constexpr uint32_t kMostOperands = 60;
  const uint32_t last = site.outputs() - 1, dtype = site.out(last).dtype;
  if (site.inputs() + site.outputs() > kMostOperands) return declined("so many operands");
  const Reduction rule = reduction_of(site.text("reduction"));
  if (!reduce_rows_function(dtype, dtype, rule)) return declined(kNoReduction);
  hx_type whole{};
  whole.dtype = dtype;
  for (const int64_t d : site.integers("shape")) whole.dims[whole.rank++] = d;
  if (!kernels::can_index(whole)) return false;
  const Division d(whole, site.integers("axes"));
  if (!d.fits()) return false;
  ChainSource source;
  const ReduceParameters p = d.parameters();
  if (!reduced_chain_source(site.raw(),
                            {site.text("reduction"), whole, d.kept, d.reduced, p.results, p.terms, p.chunks, p.chunk,
                             d.lanes(), d.pieces},
                            source))
    return false;
  if (const std::string why = site.machine().no_compiler(); !why.empty()) return declined(why);
  Work work(site.machine());
  std::vector<Operand> buffers;
  for (uint32_t i = 0; i < site.inputs() + last; ++i) buffers.push_back({i});
  const Operand result{site.inputs() + last}, pieces = d.take_pieces(work, site, result);
  buffers.push_back(pieces);
  work.add(std::make_unique<LaunchStep>(site.machine().function(source.text, "chain"), d.grid(), std::move(buffers),
                                        source.parameters.data(), source.parameters.size() * sizeof(uint32_t)));
  d.join(work, pieces, result, dtype, rule);
  hx_kernel& kernel = answer(out, std::move(work), "chain and reduce");
  for (uint32_t i = 0; last > 0 && i < site.inputs() && i < 32; ++i)
    if (source.same[i] && width(site.in(i).dtype) == width(site.out().dtype)) kernel.in_place |= 1u << i;
  return true;
}

namespace {

LaneParameters lanes_of(const Site& site) {
  const hx_type& x = site.in(0);
  const auto axis = static_cast<size_t>(site.integer("axis"));
  const auto size = static_cast<uint32_t>(x.dims[axis]);
  return {static_cast<uint32_t>(count(x)) / size, size, static_cast<uint32_t>(strides(x)[axis]), site.op() == "argmax"};
}

}  // namespace

bool plan_arg_extreme(const Site& site, hx_kernel& out) {
  const Function function = arg_extreme_function(site.in(0).dtype);
  if (!function || site.out().dtype != HX_I64) return declined(kNoType);
  const LaneParameters lanes = lanes_of(site);
  Work work(site.machine());
  work.launch(function, {lanes.lanes, 1, 1, kThreads}, {{0}, {1}}, lanes);
  answer(out, std::move(work), lanes.largest ? "argmax" : "argmin");
  return true;
}

bool plan_cumsum(const Site& site, hx_kernel& out) {
  const Function function = cumsum_function(site.in(0).dtype);
  if (!function) return declined(kNoType);
  const LaneParameters lanes = lanes_of(site);
  Work work(site.machine());
  work.over(lanes.lanes, function, {{0}, {1}}, lanes);
  answer(out, std::move(work), "cumsum");
  return true;
}

HM_PLANS(reduce, {"reduce_sum", plan_reduce}, {"reduce_max", plan_reduce}, {"reduce_min", plan_reduce},
         {"reduce_prod", plan_reduce}, {"argmax", plan_arg_extreme}, {"argmin", plan_arg_extreme},
         {"cumsum", plan_cumsum}, {"fused_reduce", plan_fused_reduce})

}  // namespace harmonics::cuda
