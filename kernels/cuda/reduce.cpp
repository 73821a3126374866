// Plans reductions over any axes, in an order that depends on shapes only.
#include "families.hpp"

namespace harmonics::cuda {
namespace {

const char* kNoType = "computes f32, f64, i32, i64 and u8";

// Division of work: enough blocks for the whole device, but a minimum of terms per chunk. Chunks begin at multiples of
// 16 bytes, whatever the type.
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

bool plan_reduce(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const Reduction rule = reduction_of(site.op());
  const Function rows = reduce_rows_function(x.dtype, rule), short_rows = reduce_short_rows_function(x.dtype, rule),
                 columns = reduce_columns_function(x.dtype, rule);
  if (!rows) return declined(kNoType);
  const auto [kept, reduced] = kernels::reduction_walks(x, site.integers("axes"));
  const int64_t results = kept.count(), terms = reduced.count();
  const auto number = [](int64_t v) { return static_cast<uint32_t>(v); };
  const auto blocks_of = [&](int64_t n, uint32_t each) { return number((n + each - 1) / each); };
  // Adjacent threads read adjacent elements: terms of one sum, or the same term of adjacent sums.
  const bool by_rows = terms > 1 && (kept.sizes.empty() || kept.strides[0].back() != 1);
  const bool is_short = by_rows && terms <= kShortRow;
  const Split s = is_short  ? Split{1, terms}
                  : by_rows ? split(results, terms, 1024)
                            : split(blocks_of(results, kThreads), terms, 128);
  if (!by_rows && s.chunks > kMostBlocks) return declined("too many terms for one sum");
  const ReduceParameters first{number(results), number(terms),  number(s.chunks),
                               number(s.chunk), steps<1>(kept), steps<1>(reduced)};
  Work work(site.machine());
  const Operand result{1},
      pieces =
          s.chunks > 1 ? work.take_workspace(site, static_cast<uint64_t>(results * s.chunks) * width(x.dtype)) : result;
  if (by_rows)
    work.launch(is_short ? short_rows : rows,
                {blocks_of(results * s.chunks, is_short ? kThreads / 32 : 1), 1, 1, kThreads}, {{0}, pieces}, first);
  else
    work.launch(columns, {blocks_of(results, kThreads), number(s.chunks), 1, kThreads}, {{0}, pieces}, first);
  if (s.chunks > 1) {
    const Walk each{{results}, {{s.chunks}}, {0}}, joined{{s.chunks}, {{1}}, {0}};
    const ReduceParameters second{number(results),  number(s.chunks), 1,
                                  number(s.chunks), steps<1>(each),   steps<1>(joined)};
    if (by_rows)
      work.launch(short_rows, {blocks_of(results, kThreads / 32), 1, 1, kThreads}, {pieces, result}, second);
    else
      work.launch(join_chunks_function(x.dtype, rule), {blocks_of(results, kJoinedResults), 1, 1, kThreads},
                  {pieces, result}, second);
  }
  answer(out, std::move(work), by_rows ? "reduce rows" : "reduce columns");
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
         {"cumsum", plan_cumsum})

}  // namespace harmonics::cuda
