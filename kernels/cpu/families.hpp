// Planning functions of all families, and functions that several families share.
#pragma once

#include <optional>
#include <span>

#include "layout.hpp"
#include "matmul.hpp"
#include "reduce.hpp"
#include "site.hpp"

namespace harmonics::cpu {

struct RoundedRoutines;

#define HM_FAMILY(name) std::span<const PlanRow> name##_plans();
#include "families.inc"
#undef HM_FAMILY

bool plan_linear(const Site&, hx_kernel&);
bool plan_typed_linear(const Site&, hx_kernel&);        // weights of 16-bit floats and stored types
bool plan_integer_linear(const Site&, hx_kernel&);      // stored types, x rounded to q8_0
bool product_of_typed(const Site&, Product&);           // of the two above; false: unsupported
bool plan_typed_cast(const Site&, hx_kernel&);          // from stored types to f32
bool plan_typed_embedding(const Site&, hx_kernel&);     // f32 from tables of 16-bit floats and stored types
bool plan_narrow_convolution(const Site&, hx_kernel&);  // forward, few channels

// Shared by several families. In the walk of a copy, array 0 is written and array 1 is read.
CopyContext copy_context(Walk walk, uint32_t element_bytes, uint32_t from_buffer, uint32_t to_buffer);
bool answer_product(const Product& product, std::vector<int64_t> a_offsets, std::vector<int64_t> b_offsets,
                    hx_kernel& out);
// Variants for products with `sums`, and with `chain`; false if no kernel does both in one pass.
bool answer_summed_product(const Product& product, hx_kernel& out);
bool answer_finished_product(const Product& product, hx_kernel& out);
// Returns the product of inputs 0 and 1 into buffer 2; nullopt if they have batch axes or cannot be read in place.
std::optional<Product> product_of_dot(const Site& site);
// Plans a kernel that never skips zeros of A.
bool answer_dense_product(const Product& product, std::vector<int64_t> a_offsets, std::vector<int64_t> b_offsets,
                          hx_kernel& out);
// Plans a kernel that rounds the operands.
void answer_rounded(const Product& product, const RoundedRoutines& routines, hx_kernel& out);
// Plans a kernel that skips the zeros of A, or runs `dense` if there are few; takes ownership of `dense`. Returns false
// if skipping cannot pay.
bool answer_sparse_product(const Product& product, hx_kernel& dense, hx_kernel& out);
// Plans sgd_outer: C = old - rate A B, reading and writing only the rows of C that change. With few zeros it runs a
// dense product with a fused SGD update, or a sum in place.
bool answer_sparse_descent(const Product& product, hx_kernel& out);
std::optional<Reduction> reduction_of(std::string_view name);  // by the name of a primitive
// Plans the stages of a reduction, from the last axes to the first; false if there are too many.
bool plan_stages(const hx_type& x, const std::vector<int64_t>& axes, ReduceContext& c);
// Sets the buffers of the stages: `from`, `to`, and `workspace` in between. Returns the size of the workspace in
// floats.
int64_t place_stages(ReduceContext& c, uint32_t from, uint32_t to, uint32_t workspace);
// Plans the product if it rounds its operands; its B may have 16-bit floats. False: it does not.
bool answer_rounded_product(const Product& product, hx_kernel& out);
bool activation_of(const Site& site, int& activation);  // false: unknown activation

}  // namespace harmonics::cpu
