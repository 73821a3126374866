#include "sort.hpp"

#include "families.hpp"

namespace harmonics::cpu {

bool plan_sort(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const auto axis = static_cast<size_t>(site.integer("axis"));
  auto c = std::make_unique<SortContext>();
  c->size = x.dims[axis];
  c->inner = strides(x)[axis];
  c->outer = count(x) / (c->size * c->inner);
  c->dtype = x.dtype;
  c->element_bytes = static_cast<uint32_t>(width(x.dtype));
  c->descending = site.flag("descending");
  if (c->size > INT32_MAX) return false;  // indices of items have 32 bits
  c->parts = parts_for(static_cast<double>(count(x)) * (4 + c->element_bytes), c->outer * c->inner);
  const int64_t workspace = 2 * c->parts * c->size * sort_item_bytes(c->element_bytes);
  answer(out, std::move(c), isa().sort, "sort").workspace = static_cast<uint64_t>(workspace);
  return true;
}

}  // namespace harmonics::cpu
