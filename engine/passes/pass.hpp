// Passes: Program -> Program functions, and the tools they share.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/program/functional.hpp"
#include "engine/program/program.hpp"

namespace harmonics::engine {

// Returns whether the device has a kernel for the node.
using HasKernel = std::function<bool(const Program&, const Node&)>;
// Returns whether the device has a kernel for a call that is not in the program yet, given by functional, attributes,
// input types and rounding; also a primitive by name.
using AcceptsCall =
    std::function<bool(const std::string&, const AttributeMap&, const std::vector<TensorType>&, Rounding)>;

// Passes keep outputs and updates bit for bit unless stated otherwise. Updates count as uses. "After" names the passes
// that must run before, and why; compile.cpp checks it.
//
// Merges equal nodes. Constants compare by content; random nodes are equal if counter and stream are. Recomputed nodes
// are not merged with others. After simplify, which makes more nodes equal; after inline_calls again, on the bodies.
Program cse(const Program& program);
// Removes unused nodes, unused leaves (input, parameter, state) included, and unused results of scans. After cse, which
// leaves nodes behind.
Program dce(const Program& program);
// Bit-exact algebra (x + 0 is not: it loses the sign of zero): folds nodes over constants of at most 4096 elements,
// removes no-ops, merges adjacent reshapes, transposes and broadcasts. Also removes stop_gradient, so run it after
// differentiation.
Program simplify(const Program& program);
// Returns whether a two-dimensional parameter or state is stored transposed. `preferred`: the preference of this
// program.
using IsTransposed = std::function<bool(const std::string& name, const TensorType& type, bool preferred)>;
// Stores the weights of affine maps as [in, out] where `is_transposed` says so, so that zeros in the input skip whole
// rows. Readers, gradients and moments follow; leaves are marked {transposed = true}. After dce and select: readers
// that go away, or whose implementation reads the file's layout, must not decide.
Program transpose_weights(const Program& program, const IsTransposed& is_transposed);
// Fuses plain gradient descent and the product that computes the gradient into `sgd_outer`, other optimizers' steps
// into `update_outer`; for a single sample also the gradient of the map's input, which reads the same weight. Rounds
// differently. Only calls that `accepts` takes. After transpose_weights, since products then have the layout of their
// weight, and after inline_calls, which shows the products and selects of gradients.
Program fuse_updates(const Program& program, const AcceptsCall& accepts);
// Lets products and lookups read what their operands are converted from: the source of a widening `cast` (a weight in
// bf16 or q8_0), whole numbers (an image's bytes) with {scale} instead of the scaled product or the `dequantize`. Only
// where all readers of the conversion can and `accepts` takes all of these calls. Exact conversions of the same
// numbers; kernels of other operand types may sum in another order. After dce, before transpose_weights, which then
// finds the stored weight; and after fuse_updates, which makes `sgd_outer`.
Program absorb_conversions(const Program& program, const AcceptsCall& accepts);
// Replaces products of f16, bf16 and several float types that are summed in f32, and that the device has no kernel for,
// by a product of f32 and casts. After inline_calls, which shows products.
Program convert_operands(const Program& program, const HasKernel& has_kernel);
// Fuses a sum with a product into `dot_add`, which accumulates into the sum's memory, if the sum is not used
// afterwards: gradients of a value used twice, gradients accumulated in a state over micro-batches. Rounds differently.
// Only calls that `accepts` takes. After fuse_updates, which has the first choice of products.
Program accumulate_products(const Program& program, const AcceptsCall& accepts);
// Fuses a product and the sum of one of its operands over the contracted axes (gradients of a weight and its bias) into
// `dot_sum`, which reads the operand once. May round differently. Only calls that `accepts` takes. After fuse_updates
// and accumulate_products, which save more.
Program sum_with_products(const Program& program, const AcceptsCall& accepts);
// Recomputes results of elementwise forward operations in the backward pass if only elementwise operations read them
// there and their operands are kept anyway: silu(gate) and its logistic function, from gate. Applies to cheap results
// of at least this many bytes. The copies are in the backward phase, so that they are fused with their readers. Runs
// after the last cse, which would merge the copies, and after fuse_pooling, fuse_updates and accumulate_products, whose
// patterns would not match the copies.
Program recompute_elementwise(const Program& program, uint64_t least_bytes);
// Fuses a product, or a linear map, and the elementwise operations on its result into `fused_dot`, which finishes
// blocks of the product while caches hold them. The operations are in the phase of the product; besides its result and
// results of each other they read only constants and values computed before the product. Rounds as the operations
// alone. Only calls that `accepts` takes. After fuse_updates, accumulate_products and sum_with_products, which save
// more, and recompute_elementwise, which adds such operations.
Program finish_products(const Program& program, const AcceptsCall& accepts);
// Replaces a linear map whose scores only softmax_cross_entropy and its gradient read by linear_cross_entropy, or by
// linear_cross_entropy_step, which also gives the gradients: in chunks of rows, or of classes where rows are few, so
// that an eighth of the scores exists at a time.
// Only scores of at least so many bytes, and only where the gradient of the loss does not depend on the loss. Sums the
// weight's gradient in another order. After dce, which removes readers, set_precision, whose rounding the call keeps,
// and select.
Program chunk_scores(const Program& program, uint64_t least_bytes);
// Fuses activations into the call before, if its attribute `activation` can name them. Only where the intermediate
// value has no other reader and `accepts` takes the fused call. After dce, which removes readers, and select, whose
// implementation may replace either call.
Program fuse_calls(const Program& program, const AcceptsCall& accepts);
// Fuses max pooling with the convolution before it. Forward: conv_max_pool, if the convolution's result has no other
// reader. Backward: conv_max_pool_grad_input and _weight, which visit only the maxima; relu's gradient moves behind
// max_pool's, bit for bit, but the gradient of the bias is summed in another order. Only calls that `accepts` takes.
// After inline_calls, which shows relu's gradient.
Program fuse_pooling(const Program& program, const AcceptsCall& accepts);
// Clones forward nodes before their first use after the forward pass, so that their results need not be kept: parts of
// blocks, or scopes that match a pattern ("*/attention"). Clones are in the phase `recomputed`. Nodes in a scope that
// ends in "residual" are always kept, and so are small second results (an attention's log-sum-exp). After cse, which
// would merge clones and originals of calls, and fuse_calls, so that clones are fused too.
struct Recomputation;
Program recompute_parts(const Program& program, const Recomputation& what);
Program recompute(const Program& program, const std::vector<std::string>& scope_patterns);
// Replaces calls without a kernel by their body, recursively. `before` may change the program's nodes before each
// round. After fuse_calls and recompute, which match calls.
Program inline_calls(const Program& program, const HasKernel& has_kernel,
                     const std::function<void(Program&)>& before = {});
// Fuses chains of elementwise nodes, and broadcasts of their inputs, into fused_elementwise nodes that `accepts` takes
// (null: all). After all passes that match elementwise operations or products.
Program fuse_elementwise(const Program& program, const HasKernel& accepts = {});
// Fuses elementwise operations and the reduction of their result into fused_reduce; the intermediate result is not
// stored if it has no other reader. Only nodes that `accepts` takes (null: all). After fuse_elementwise, which makes
// the chains, and sum_with_products, which takes sums.
Program fuse_reductions(const Program& program, const HasKernel& accepts = {});
// Moves nodes of the optimizer directly after their last dependency, so that gradients live no longer than needed.
// After all fusions, which move readers.
Program advance_updates(const Program& program);
// Fuses the optimizer steps of several parameters into one `update_all`, bit for bit; their gradients live until then.
// Only calls that `accepts` takes. After fuse_updates, which saves more, and advance_updates.
Program join_updates(const Program& program, const AcceptsCall& accepts);

inline bool is_forward(const Program& program, const Node& node) { return program.scope_of(node).is_forward(); }
inline bool is_in(Phase phase, const Program& program, const Node& node) {
  return program.scope_of(node).phase == phase;
}
// '*' matches any characters, including '/'.
bool matches_pattern(std::string_view text, std::string_view pattern);
// The value behind reshapes and slices, whose memory v most likely shares.
ValueId behind_views(const Program& program, ValueId v);
// The value that v stretches, as kernels of elementwise operations read it; v unless it is a broadcast.
ValueId behind_broadcasts(const Program& program, ValueId v);
// Whether the node is a product whose operands, result and sums have their usual types: those of `dot` without
// out_dtype and accumulate, both operands of one type.
bool is_usual_product(const Program& program, const Node& node);
// The axes among the attributes of a product.
AttributeMap axes_of_dot(const AttributeMap& attributes);
// Returns whether the value is all zeros, possibly broadcast.
bool is_zero(const Program& program, ValueId v);
// Index of the last host_call, a plugin's code: it may throw, so no update may run before it. -1: none.
int64_t last_own_code(const Program& program);
inline bool is_constant(Op op) { return op == Op::literal || op == Op::full || op == Op::iota; }
inline bool is_leaf(Op op) { return op == Op::input || op == Op::parameter || op == Op::state; }

// Copies a program node by node with replacements; the base of most passes.
class Rewriter {
 public:
  explicit Rewriter(const Program& from);
  static constexpr ValueId kNone = ~0u;
  Program& to() { return to_; }
  const Program& to() const { return to_; }
  ValueId mapped(ValueId old) const { return map_[old]; }
  void map(ValueId old, ValueId now) { map_[old] = now; }
  void copy(const Node& node);                         // maps its inputs
  void splice(const Program& body, const Node& call);  // inlines a body in place of a call node, in the call's scope
  // A node with mapped inputs and no outputs, to be changed before appending.
  Node prepared(const Node& node) const;
  // Appends a node with mapped inputs; its outputs replace those of `original`.
  void put(Node node, const Node& original);
  // Appends a node with mapped inputs and returns its results. Returns nothing and leaves the program unchanged if
  // `accepts` (null: always) rejects it.
  std::optional<std::vector<ValueId>> append_accepted(Node node, const std::vector<TensorType>& types,
                                                      const HasKernel& accepts);
  Program finish();  // maps outputs and updates, verifies

 private:
  const Program& from_;
  Program to_;
  std::vector<ValueId> map_;
};

}  // namespace harmonics::engine
