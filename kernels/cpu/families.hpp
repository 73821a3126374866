// One planning function per family of call sites; device.cpp maps names to them.
#pragma once

#include <optional>

#include "layout.hpp"
#include "matmul.hpp"
#include "reduce.hpp"
#include "site.hpp"

namespace harmonics::cpu {

bool plan_chain(const Site&, hx_kernel&);
bool plan_elementwise(const Site&, hx_kernel&);
bool plan_dropout(const Site&, hx_kernel&);

bool plan_transpose(const Site&, hx_kernel&);
bool plan_broadcast(const Site&, hx_kernel&);
bool plan_slice(const Site&, hx_kernel&);
bool plan_reverse(const Site&, hx_kernel&);
bool plan_pad(const Site&, hx_kernel&);
bool plan_concat(const Site&, hx_kernel&);
bool plan_bitcast(const Site&, hx_kernel&);
bool plan_full(const Site&, hx_kernel&);
bool plan_iota(const Site&, hx_kernel&);
bool plan_random_uniform(const Site&, hx_kernel&);

bool plan_reduce(const Site&, hx_kernel&);
bool plan_fused_reduce(const Site&, hx_kernel&);
bool plan_arg_extreme(const Site&, hx_kernel&);
bool plan_cumsum(const Site&, hx_kernel&);
bool plan_window(const Site&, hx_kernel&);
bool plan_window_grad(const Site&, hx_kernel&);

bool plan_dot(const Site&, hx_kernel&);
bool plan_dot_add(const Site&, hx_kernel&);
bool plan_linear(const Site&, hx_kernel&);
bool plan_typed_linear(const Site&, hx_kernel&);    // weights of 16-bit floats and stored types
bool plan_integer_linear(const Site&, hx_kernel&);  // stored types, x rounded to q8_0
bool plan_any_linear(const Site&, hx_kernel&);      // by whether x is rounded
bool product_of_typed(const Site&, Product&);       // of both; false: they do not compute it
bool plan_sgd_outer(const Site&, hx_kernel&);

bool plan_softmax(const Site&, hx_kernel&);
bool plan_softmax_cross_entropy(const Site&, hx_kernel&);
bool plan_optimizer(const Site&, hx_kernel&);
bool plan_update_outer(const Site&, hx_kernel&);
bool plan_rmsprop(const Site&, hx_kernel&);
bool plan_lamb(const Site&, hx_kernel&);
bool plan_global_norm(const Site&, hx_kernel&);
bool plan_row_norm(const Site&, hx_kernel&);
bool plan_batch_norm(const Site&, hx_kernel&);
bool plan_group_norm(const Site&, hx_kernel&);
bool plan_recurrent(const Site&, hx_kernel&);

bool plan_convolution(const Site&, hx_kernel&);
bool plan_narrow_convolution(const Site&, hx_kernel&);  // forward, few channels
bool plan_pooled_convolution(const Site&, hx_kernel&);
bool plan_pool(const Site&, hx_kernel&);
bool plan_patches(const Site&, hx_kernel&);
bool plan_quantize(const Site&, hx_kernel&);
bool plan_attention(const Site&, hx_kernel&);
bool plan_rope(const Site&, hx_kernel&);
bool plan_cache_append(const Site&, hx_kernel&);

bool plan_typed_embedding(const Site&, hx_kernel&);  // tables of stored types
bool plan_gather(const Site&, hx_kernel&);
bool plan_scatter_add(const Site&, hx_kernel&);
bool plan_gather_nd(const Site&, hx_kernel&);
bool plan_scatter_nd(const Site&, hx_kernel&);
bool plan_dynamic_slice(const Site&, hx_kernel&);
bool plan_update_slice(const Site&, hx_kernel&);
bool plan_top_k(const Site&, hx_kernel&);
bool plan_sort(const Site&, hx_kernel&);
bool plan_embedding_grad(const Site&, hx_kernel&);

// Shared by several families. Walks of copies: array 0 is written, array 1 is read.
CopyContext copy_context(Walk walk, uint32_t element_bytes, uint32_t from_buffer, uint32_t to_buffer);
bool answer_product(const Product& product, std::vector<int64_t> a_offsets, std::vector<int64_t> b_offsets,
                    hx_kernel& out);
// Never skips zeros of A.
bool answer_dense_product(const Product& product, std::vector<int64_t> a_offsets, std::vector<int64_t> b_offsets,
                          hx_kernel& out);
// Whether the product may be computed in fp16 chunks, the processor supports them and it is large enough.
bool suits_half_product(const Product& product, double flops);
void answer_half_product(const Product& product, double flops, hx_kernel& out);
// The same with operands rounded to bf16.
bool suits_bf16_product(const Product& product, double flops);
void answer_bf16_product(const Product& product, double flops, hx_kernel& out);
// Skips the zeros of A, or runs `dense` (ownership passes) if there are few zeros. False if skipping cannot pay.
bool answer_sparse_product(const Product& product, hx_kernel& dense, hx_kernel& out);
// For sgd_outer: C = old - rate A B, which reads and writes only rows of C that change; with few zeros a dense product
// that descends, or a sum in place.
bool answer_sparse_descent(const Product& product, hx_kernel& out);
std::optional<Reduction> reduction_of(std::string_view name);  // of a primitive
// Stages of a reduction, from the last axes to the first; false if there are too many.
bool plan_stages(const hx_type& x, const std::vector<int64_t>& axes, ReduceContext& c);
// Sets the stages' buffers: `from`, `to`, and `workspace` in between. Returns the floats needed in the workspace.
int64_t place_stages(ReduceContext& c, uint32_t from, uint32_t to, uint32_t workspace);
bool activation_of(const Site& site, int& activation);  // false: unknown activation

}  // namespace harmonics::cpu
