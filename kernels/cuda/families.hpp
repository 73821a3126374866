// One planning function per family of call sites; device.cpp maps names to them.
#pragma once

#include <harmonics/memory_device.hpp>

#include "work.hpp"

namespace harmonics::cuda {

// Creates the device without calling the driver.
std::shared_ptr<CapturingDevice> make_device();

bool plan_elementwise(const Site&, hx_kernel&);
bool plan_chain(const Site&, hx_kernel&);

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

bool plan_reduce(const Site&, hx_kernel&);
bool plan_arg_extreme(const Site&, hx_kernel&);
bool plan_cumsum(const Site&, hx_kernel&);

bool plan_dot(const Site&, hx_kernel&);
bool plan_dot_sum(const Site&, hx_kernel&);
bool plan_linear(const Site&, hx_kernel&);

bool plan_conv(const Site&, hx_kernel&);
bool plan_conv_grad_input(const Site&, hx_kernel&);
bool plan_conv_grad_weight(const Site&, hx_kernel&);

bool plan_attention(const Site&, hx_kernel&);
bool plan_sequence(const Site&, hx_kernel&);  // attention with optional inputs, a window or a cap, or over a cache
bool plan_sequence_grad(const Site&, hx_kernel&);
bool plan_rope(const Site&, hx_kernel&);
bool plan_cache_append(const Site&, hx_kernel&);

bool plan_softmax(const Site&, hx_kernel&);
bool plan_softmax_cross_entropy(const Site&, hx_kernel&);
bool plan_row_norm(const Site&, hx_kernel&);
bool plan_row_norm_grad(const Site&, hx_kernel&);
bool plan_batch_norm(const Site&, hx_kernel&);
bool plan_group_norm(const Site&, hx_kernel&);

bool plan_update(const Site&, hx_kernel&);
bool plan_update_all(const Site&, hx_kernel&);
bool plan_lamb(const Site&, hx_kernel&);
bool plan_global_norm(const Site&, hx_kernel&);

bool plan_patches(const Site&, hx_kernel&);
bool plan_unpatches(const Site&, hx_kernel&);
bool plan_pool(const Site&, hx_kernel&);

// Shared by families: copies elements of `bytes` along a walk over the result and the source.
void copy_along(Work& work, uint32_t bytes, Operand from, Operand to, Walk walk);
void fill(Work& work, uint32_t dtype, Operand to, int64_t n, uint64_t bits);
// Reads the call's activation attribute; false: unknown.
bool activation_of(const Site& site, Activation& activation);

}  // namespace harmonics::cuda
