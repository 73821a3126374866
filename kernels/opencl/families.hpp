// Planning functions of all families, and functions that several families share.
#pragma once

#include "work.hpp"

namespace harmonics::opencl {

#define HM_FAMILY(name) std::span<const PlanRow> name##_plans();
#include "families.inc"
#undef HM_FAMILY

bool plan_elementwise(const Site&, hx_kernel&);

// Shared by several families. Copies elements of `bytes` bytes along a walk over the result and the source.
Launch copy_along(Machine& machine, uint32_t bytes, uint32_t from, uint32_t to, Walk walk);
// Copies a whole tensor of any type, including stored types. Does nothing if source and destination are the same.
Launch copy_whole(Machine& machine, const hx_type& type, uint32_t from, uint32_t to);
// Fills a buffer's first n elements.
Launch fill(Machine& machine, uint32_t dtype, uint32_t to, int64_t n, double value);
// Returns the statement that combines `v` with `sum`, for "set", "add", "sum", "max" or "min". In max and min, NaN
// replaces numbers and stays.
const char* joining(std::string_view reduction);
// Computes n sums of `parts` terms each, in order. The terms of a sum are n apart, begin at element `first` and have
// the type `sums`.
Launch join_parts(Machine& machine, uint32_t sums, uint32_t from, int64_t first, int64_t n, int64_t parts,
                  uint32_t dtype, uint32_t to);
// Norm of n elements. squares() writes sums of squares of norm_parts(n) parts, of type `sums`, from element `first` of
// `to`. root_of_sum() writes the square root of the sum of n parts to element `at`.
int64_t norm_parts(int64_t n);
Launch squares(Machine& machine, uint32_t dtype, uint32_t from, uint32_t sums, int64_t n, uint32_t to, int64_t first);
Launch root_of_sum(Machine& machine, uint32_t dtype, uint32_t from, int64_t first, int64_t n, uint32_t to, int64_t at);

}  // namespace harmonics::opencl
