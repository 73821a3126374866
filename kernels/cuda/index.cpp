// Plans gather, scatter and other index operations.
#include "families.hpp"

namespace harmonics::cuda {
namespace {

const char* kNoType = "adds f32, f64, i32, i64 and u8";

struct Axis {
  int64_t outer;
  uint32_t size, inner;
  Axis(const hx_type& x, int64_t axis)
      : size(static_cast<uint32_t>(x.dims[axis])), inner(static_cast<uint32_t>(strides(x)[static_cast<size_t>(axis)])) {
    outer = count(x) / (int64_t{size} * inner);
  }
};

// Plans the addition of updates to y, which is already initialised.
bool answer_added(const Site& site, Work work, const Axis& y, uint32_t ids, uint32_t updates, uint32_t to,
                  const char* name, hx_kernel& out) {
  const Function add = add_function(site.out().dtype);
  if (!add) return declined(kNoType);
  const auto indices = static_cast<uint32_t>(count(site.in(ids)));
  if (y.outer > kMostBlocks) return declined("adds to at most 65535 outer rows");
  const uint32_t dtype = site.in(ids).dtype;
  const Operand links = work.take_workspace(site, uint64_t{indices} * 8);
  work.over(indices, link_function(), {{ids}, links}, LinkParameters{indices, y.size, dtype});
  work.launch(add, {indices, static_cast<uint32_t>(y.outer), 1, kThreads}, {{updates}, {ids}, links, {to}},
              AddParameters{indices, y.size, y.inner, dtype, Joining::add});
  answer(out, std::move(work), name);
  return true;
}

PositionParameters positions_of(const Site& site, uint32_t& rows) {
  const hx_type &x = site.in(0), &ids = site.in(1);
  const auto batch = static_cast<uint32_t>(site.integer("batch_axes"));
  PositionParameters p{0, 0, 1, static_cast<uint32_t>(last(ids)), ids.dtype, {}};
  rows = 1;
  uint32_t batches = 1;
  for (uint32_t i = 0; i < x.rank; ++i) {
    const auto size = static_cast<uint32_t>(x.dims[i]);
    if (i < batch) batches *= size;
    if (i >= batch && i < batch + p.k) p.sizes[i - batch] = size;
    (i < batch + p.k ? rows : p.inner) *= size;
  }
  p.places = static_cast<uint32_t>(count(ids)) / (batches * p.k);
  return p;
}

BlockParameters block_parameters(const hx_type& whole, const hx_type& block, uint32_t dtype) {
  BlockParameters p{static_cast<uint32_t>(count(block)), whole.rank, dtype, {}, {}};
  for (uint32_t i = 0; i < whole.rank; ++i) {
    p.block[i] = static_cast<uint32_t>(block.dims[i]);
    p.whole[i] = static_cast<uint32_t>(whole.dims[i]);
  }
  return p;
}

}  // namespace

bool plan_gather(const Site& site, hx_kernel& out) {
  const hx_type &x = site.in(0), &ids = site.in(1);
  if (is_float(ids.dtype) || x.rank == 0) return declined("takes whole numbers as indices");
  if (x.dtype != site.out().dtype) return declined("copies rows, without a conversion");
  const Axis axis(x, site.op() == "embedding" ? 0 : site.integer("axis"));
  const auto n = static_cast<uint32_t>(count(site.out()));
  Work work(site.machine());
  work.over(n, gather_function(width(x.dtype)), {{0}, {1}, {2}},
            GatherParameters{n, axis.size, axis.inner, static_cast<uint32_t>(count(ids)), ids.dtype});
  answer(out, std::move(work), "gather");
  return true;
}

bool plan_scatter_add(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  if (x.rank == 0) return declined("needs an axis");
  Work work(site.machine());
  work.copy({3}, {0}, bytes_of(x));
  if (!answer_added(site, std::move(work), Axis(x, site.integer("axis")), 1, 2, 3, "scatter add", out)) return false;
  out.in_place = 1;
  return true;
}

bool plan_gather_nd(const Site& site, hx_kernel& out) {
  uint32_t rows = 0;
  PositionParameters p = positions_of(site, rows);
  p.count = static_cast<uint32_t>(count(site.out()));
  Work work(site.machine());
  work.over(p.count, gather_nd_function(width(site.in(0).dtype)), {{0}, {1}, {2}}, p);
  answer(out, std::move(work), "gather nd");
  return true;
}

// Computes the rows of all positions first; then updates are combined as along a single axis.
bool plan_scatter_nd(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const Function add = add_function(x.dtype);
  if (!add) return declined(kNoType);
  const std::string reduction = site.text("reduction");
  uint32_t rows = 0;
  PositionParameters p = positions_of(site, rows);
  const uint32_t inner = p.inner, places = static_cast<uint32_t>(count(site.in(1))) / p.k;
  p.count = places;
  Work work(site.machine());
  const Operand numbers = work.take_workspace(site, uint64_t{places} * 4),
                links = work.take_workspace(site, uint64_t{places} * 8);
  work.copy({3}, {0}, bytes_of(x));
  work.over(places, rows_function(), {{1}, numbers}, p);
  work.over(places, link_function(), {numbers, links}, LinkParameters{places, rows, HX_U32});
  const Joining joining = reduction == "add"   ? Joining::add
                          : reduction == "max" ? Joining::largest
                          : reduction == "min" ? Joining::least
                                               : Joining::set;
  work.launch(add, {places, 1, 1, kThreads}, {{2}, numbers, links, {3}},
              AddParameters{places, rows, inner, HX_U32, joining});
  answer(out, std::move(work), "scatter nd").in_place = 1;
  return true;
}

bool plan_embedding_grad(const Site& site, hx_kernel& out) {
  constexpr int64_t kMostLooks = int64_t{1} << 32;  // limit of index reads by all blocks
  const Axis axis(site.out(), 0);
  const Function collect = collect_function(site.out().dtype);
  const int64_t indices = count(site.in(0)), columns = (axis.inner + kThreads - 1) / kThreads;
  Work work(site.machine());
  if (collect && columns <= kMostBlocks && axis.size * columns * indices <= kMostLooks) {
    work.launch(collect, {axis.size, static_cast<uint32_t>(columns), 1, kThreads}, {{1}, {0}, {2}},
                AddParameters{static_cast<uint32_t>(indices), axis.size, axis.inner, site.in(0).dtype, Joining::add});
    answer(out, std::move(work), "embedding gradient");
    return true;
  }
  fill(work, site.out().dtype, {2}, count(site.out()), 0);
  return answer_added(site, std::move(work), Axis(site.out(), 0), 0, 1, 2, "embedding gradient", out);
}

bool plan_dynamic_slice(const Site& site, hx_kernel& out) {
  const hx_type &x = site.in(0), &y = site.out();
  Work work(site.machine());
  work.over(count(y), dynamic_slice_function(width(x.dtype)), {{0}, {1}, {2}},
            block_parameters(x, y, site.in(1).dtype));
  answer(out, std::move(work), "dynamic slice");
  return true;
}

bool plan_update_slice(const Site& site, hx_kernel& out) {
  const hx_type &x = site.in(0), &block = site.in(1);
  Work work(site.machine());
  work.copy({3}, {0}, bytes_of(x));
  work.over(count(block), update_slice_function(width(x.dtype)), {{1}, {2}, {3}},
            block_parameters(x, block, site.in(2).dtype));
  answer(out, std::move(work), "update slice").in_place = 1;
  return true;
}

bool plan_top_k(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const Function top = top_function(x.dtype);
  if (!top || site.out(1).dtype != HX_I64) return declined("orders f32, f64, i32, i64 and u8");
  const auto n = static_cast<uint32_t>(last(x));
  Work work(site.machine());
  work.launch(top, {static_cast<uint32_t>(count(x) / n), 1, 1, kThreads}, {{0}, {1}, {2}},
              TopParameters{n, static_cast<uint32_t>(site.integer("k"))});
  answer(out, std::move(work), "top k");
  return true;
}

HM_PLANS(index, {"gather", plan_gather}, {"embedding", plan_gather}, {"scatter_add", plan_scatter_add},
         {"embedding_grad", plan_embedding_grad}, {"dynamic_slice", plan_dynamic_slice},
         {"update_slice", plan_update_slice}, {"gather_nd", plan_gather_nd}, {"scatter_nd", plan_scatter_nd},
         {"top_k", plan_top_k})

}  // namespace harmonics::cuda
