// One planning function per family of call sites; device.cpp maps names to them.
#pragma once

#include "work.hpp"

namespace harmonics::opencl {

bool plan_elementwise(const Site&, hx_kernel&);
bool plan_chain(const Site&, hx_kernel&);
bool plan_select(const Site&, hx_kernel&);
bool plan_cast(const Site&, hx_kernel&);
bool plan_dropout(const Site&, hx_kernel&);

bool plan_reshape(const Site&, hx_kernel&);
bool plan_transpose(const Site&, hx_kernel&);
bool plan_broadcast(const Site&, hx_kernel&);
bool plan_slice(const Site&, hx_kernel&);
bool plan_reverse(const Site&, hx_kernel&);
bool plan_pad(const Site&, hx_kernel&);
bool plan_concat(const Site&, hx_kernel&);
bool plan_full(const Site&, hx_kernel&);
bool plan_iota(const Site&, hx_kernel&);
bool plan_random_uniform(const Site&, hx_kernel&);

bool plan_reduce(const Site&, hx_kernel&);
bool plan_fused_reduce(const Site&, hx_kernel&);
bool plan_arg_extreme(const Site&, hx_kernel&);
bool plan_cumsum(const Site&, hx_kernel&);

bool plan_dot(const Site&, hx_kernel&);
bool plan_linear(const Site&, hx_kernel&);
bool plan_dot_add(const Site&, hx_kernel&);
bool plan_sgd_outer(const Site&, hx_kernel&);

bool plan_patches(const Site&, hx_kernel&);
bool plan_unpatches(const Site&, hx_kernel&);
bool plan_max_pool(const Site&, hx_kernel&);
bool plan_max_pool_grad(const Site&, hx_kernel&);
bool plan_conv(const Site&, hx_kernel&);
bool plan_conv_grad_input(const Site&, hx_kernel&);
bool plan_conv_grad_weight(const Site&, hx_kernel&);
bool plan_conv_max_pool(const Site&, hx_kernel&);
bool plan_conv_max_pool_grad(const Site&, hx_kernel&);

bool plan_gather(const Site&, hx_kernel&);
bool plan_scatter_add(const Site&, hx_kernel&);
bool plan_embedding_grad(const Site&, hx_kernel&);
bool plan_dynamic_slice(const Site&, hx_kernel&);
bool plan_update_slice(const Site&, hx_kernel&);
bool plan_gather_nd(const Site&, hx_kernel&);
bool plan_scatter_nd(const Site&, hx_kernel&);
bool plan_top_k(const Site&, hx_kernel&);
bool plan_sort(const Site&, hx_kernel&);
bool plan_reduce_window(const Site&, hx_kernel&);

bool plan_quantize(const Site&, hx_kernel&);
bool plan_dequantize(const Site&, hx_kernel&);

bool plan_softmax(const Site&, hx_kernel&);
bool plan_softmax_cross_entropy(const Site&, hx_kernel&);
bool plan_row_norm(const Site&, hx_kernel&);
bool plan_row_norm_grad(const Site&, hx_kernel&);
bool plan_set_norm(const Site&, hx_kernel&);
bool plan_set_norm_grad(const Site&, hx_kernel&);

bool plan_attention(const Site&, hx_kernel&);
bool plan_attention_grad(const Site&, hx_kernel&);
bool plan_rope(const Site&, hx_kernel&);
bool plan_cache_append(const Site&, hx_kernel&);
bool plan_scan(const Site&, hx_kernel&);

bool plan_optimizer(const Site&, hx_kernel&);
bool plan_global_norm(const Site&, hx_kernel&);

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
