// The rows of all families, and what families share.
#pragma once

#include "work.hpp"

namespace harmonics::opencl {

#define HM_FAMILY(name) std::span<const PlanRow> name##_plans();
#include "families.inc"
#undef HM_FAMILY

bool plan_elementwise(const Site&, hx_kernel&);

// Shared by families: copies elements of `bytes` along a walk over the result and the source.
Launch copy_along(Machine& machine, uint32_t bytes, uint32_t from, uint32_t to, Walk walk);
// Copies a whole tensor, unless both are the same place; also of a stored type.
Launch copy_whole(Machine& machine, const hx_type& type, uint32_t from, uint32_t to);
// Fills a buffer's first n elements.
Launch fill(Machine& machine, uint32_t dtype, uint32_t to, int64_t n, double value);
// The statement that joins `v` to `sum`: "set", "add", "sum", "max" or "min". NaN wins and stays in extremes.
const char* joining(std::string_view reduction);
// n sums of `parts` terms each, in order; terms are n apart, from element `first` on, of the type `sums` is computed
// in.
Launch join_parts(Machine& machine, uint32_t sums, uint32_t from, int64_t first, int64_t n, int64_t parts,
                  uint32_t dtype, uint32_t to);
// Norm of n elements: sums of squares of parts, in the type `sums`, from element `first` of `to` on; then the root of
// the sum of n such parts, at element `at`.
int64_t norm_parts(int64_t n);
Launch squares(Machine& machine, uint32_t dtype, uint32_t from, uint32_t sums, int64_t n, uint32_t to, int64_t first);
Launch root_of_sum(Machine& machine, uint32_t dtype, uint32_t from, int64_t first, int64_t n, uint32_t to, int64_t at);

}  // namespace harmonics::opencl
