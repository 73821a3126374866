// Plans sort as a merge sort of each line's indices, with runs that double in length.
#include "families.hpp"

namespace harmonics::cuda {

bool plan_sort(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const Function merge = merge_function(x.dtype);
  if (!merge) return declined("orders f32, f64, i32, i64 and u8");
  const auto axis = static_cast<size_t>(site.integer("axis"));
  SortParameters p{static_cast<uint32_t>(count(x)), static_cast<uint32_t>(x.dims[axis]),
                   static_cast<uint32_t>(strides(x)[axis]), 1, site.flag("descending")};
  Work work(site.machine());
  Operand order = work.take_workspace(site, uint64_t{p.count} * 4),
          merged = work.take_workspace(site, uint64_t{p.count} * 4);
  work.over(p.count, begin_sort_function(), {order}, p);
  for (uint64_t run = 1; run < p.size; run *= 2) {
    p.run = static_cast<uint32_t>(run);
    work.over(p.count, merge, {{0}, order, merged}, p);
    std::swap(order, merged);
  }
  work.over(p.count, finish_sort_function(width(x.dtype)), {{0}, order, {1}, {2}}, p);
  answer(out, std::move(work), "sort");
  return true;
}

HM_PLANS(sort, {"sort", plan_sort})

}  // namespace harmonics::cuda
