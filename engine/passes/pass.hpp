// Passes: functions Program -> Program, and their shared utilities.
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
// Returns whether the device has a kernel for a call that is not in the program yet, given by functional (or
// primitive), attributes, input types and rounding.
using AcceptsCall =
    std::function<bool(const std::string&, const AttributeMap&, const std::vector<TensorType>&, Rounding)>;

// Outputs and updates stay bit-identical unless stated otherwise. Updates count as uses. "After" names the passes that
// must run before, and the reason; compile.cpp checks this order.
//
// Merges equal nodes. Constants are compared by content, random nodes by counter and stream. Recomputed nodes are not
// merged with others. After simplify, which makes more nodes equal; again after inline_calls, for the bodies.
Program cse(const Program& program);
// Removes unused nodes, including leaves (input, parameter, state), and unused results of scans. After cse, which
// leaves unused nodes.
Program dce(Program program);
// Bit-exact simplification: folds nodes over constants of at most 4096 elements, removes no-ops, merges adjacent
// reshapes, transposes and broadcasts. Keeps x + 0, which changes the sign of -0. Removes stop_gradient, so it must run
// after differentiation.
Program simplify(const Program& program);
// Decides whether a two-dimensional parameter or state is stored transposed. `preferred`: this program's preference.
using IsTransposed = std::function<bool(const std::string& name, const TensorType& type, bool preferred)>;
// Stores weights of affine maps as [in, out] if `is_transposed` returns true, so that zeros in the input skip whole
// rows. Adapts readers, gradients and moments; marks leaves with {transposed = true}. After dce and select, so that
// readers that are removed, or whose implementation reads the layout of the file, do not influence the choice.
Program transpose_weights(const Program& program, const IsTransposed& is_transposed);
// Fuses plain gradient descent with the product that computes the gradient into `sgd_outer`, and steps of other
// optimizers into `update_outer`. For a single sample, includes the gradient of the map's input, which reads the same
// weight. Rounds differently. Only calls that `accepts` allows. After transpose_weights, so that products have the
// layout of their weight, and after inline_calls, which exposes the products and selects of gradients.
Program fuse_updates(const Program& program, const AcceptsCall& accepts);
// Makes products and lookups read the unconverted sources of their operands: the source of a widening `cast` (a weight
// in bf16 or q8_0), or integers (the bytes of an image) with {scale} instead of a multiplication or `dequantize`. Only
// if all readers of the conversion support this and `accepts` allows all of these calls. Conversions are exact, but
// kernels for other operand types may sum in another order. After dce and before transpose_weights, which then sees the
// stored weight; again after fuse_updates, which creates `sgd_outer`.
Program absorb_conversions(const Program& program, const AcceptsCall& accepts);
// Replaces products of f16, bf16 or mixed float types that are summed in f32 and that the device has no kernel for by
// casts and a product in f32. After inline_calls, which exposes products.
Program convert_operands(const Program& program, const HasKernel& has_kernel);
// Fuses a product and its addition to a sum into `dot_add`, which accumulates into the sum's memory, if the sum is not
// used afterwards: gradients of a value used twice, or gradients accumulated over micro-batches. Rounds differently.
// Only calls that `accepts` allows. After fuse_updates, which takes precedence.
Program accumulate_products(const Program& program, const AcceptsCall& accepts);
// Fuses a product and the sum of one of its operands over the contracted axes (gradients of a weight and its bias) into
// `dot_sum`, which reads the operand once. May round differently. Only calls that `accepts` allows. After fuse_updates
// and accumulate_products, which save more.
Program sum_with_products(const Program& program, const AcceptsCall& accepts);
// Recomputes results of elementwise forward operations in the backward pass, if only elementwise operations read them
// there and their operands are kept anyway: silu(gate) and its logistic function, from gate. Applies to cheap results
// of at least `least_bytes`. The copies are in the backward phase, so that they are fused with their readers. After the
// last cse, which would merge the copies, and after fuse_pooling, fuse_updates and accumulate_products, whose patterns
// would not match the copies.
Program recompute_elementwise(const Program& program, uint64_t least_bytes);
// Computes the derivative of an activation such as gelu beside it, if only its gradient (Traits::gradient_of) reads the
// argument in the backward pass: the step keeps the derivative instead of the argument, and the gradient is a product.
// Applies to arguments of at least `least_bytes` that are products which can be finished. Bits are unchanged. After
// recompute_elementwise, whose copies read arguments, and before finish_products, which computes both in one visit.
Program keep_derivatives(const Program& program, uint64_t least_bytes, const AcceptsCall& accepts);
// Fuses a product, or a linear map, and the elementwise operations on its result (its epilogue) into `fused_dot`, which
// applies them to tiles of the product while these are in cache. The operations are in the phase of the product, and
// otherwise read only each other's results, constants and values computed before the product. Rounding is unchanged.
// Only calls that `accepts` allows. After fuse_updates, accumulate_products and sum_with_products, which save more, and
// recompute_elementwise and keep_derivatives, which add elementwise operations.
Program finish_products(const Program& program, const AcceptsCall& accepts);
// Whether `node` is a product, or a linear map, with which finish_products() fuses an elementwise operation on it.
bool can_finish(const Program& program, const Node& node, std::string_view operation, const AcceptsCall& accepts);
// Replaces a linear map whose scores are only read by softmax_cross_entropy and its gradient by linear_cross_entropy,
// or by linear_cross_entropy_step, which also computes the gradients. These process chunks of rows, or
// slices of the classes if there are few rows, so that at most an eighth of the scores exists at once. The weight may
// be a frozen one in 16-bit floats or a stored type. Only scores of at least `least_bytes`, and only if the gradient of
// the loss does not depend on the loss. Sums the weight's gradient in another order. After dce, which removes readers,
// set_precision, whose rounding the call keeps, and select.
Program chunk_scores(const Program& program, uint64_t least_bytes);
// Fuses an activation into the preceding call, if its attribute `activation` supports it. Only if the intermediate
// value has no other reader and `accepts` allows the fused call. After dce, which removes readers, and select, which
// may replace either call.
Program fuse_calls(const Program& program, const AcceptsCall& accepts);
// Fuses max pooling with the preceding convolution. Forward: conv_max_pool, if the convolution's result has no other
// reader. Backward: conv_max_pool_grad_input and _weight, which visit only the maxima. Moving relu's gradient across
// max_pool's is bit-exact, but the gradient of the bias is summed in another order. Only calls that `accepts` allows.
// After inline_calls, which exposes relu's gradient.
Program fuse_pooling(const Program& program, const AcceptsCall& accepts);
// Recomputes parts of blocks, or scopes that match a pattern ("*/attention"), in the backward pass: clones their
// forward nodes before the first use after the forward pass, so that their results need not be kept. Clones are in the
// phase `recomputed`. Nodes in scopes that end in "residual" are always kept, and so are small secondary results (the
// log-sum-exp of an attention). After cse, which would merge calls with their clones, and fuse_calls, so that clones
// are fused too.
struct Recomputation;
Program recompute_parts(const Program& program, const Recomputation& what);
Program recompute(const Program& program, const std::vector<std::string>& scope_patterns);
// Replaces calls without a kernel by their body, recursively. `before` is called before each round and may change
// nodes. After fuse_calls and recompute, which match calls.
Program inline_calls(const Program& program, const HasKernel& has_kernel,
                     const std::function<void(Program&)>& before = {});
// Fuses chains of elementwise nodes, and broadcasts of their inputs, into fused_elementwise nodes that `accepts` allows
// (null: all). After all passes that match elementwise operations or products.
Program fuse_elementwise(const Program& program, const HasKernel& accepts = {});
// Fuses elementwise operations and the reduction of their result into fused_reduce; the intermediate result is not
// stored if it has no other reader. Only nodes that `accepts` allows (null: all). After fuse_elementwise, which creates
// the chains, and sum_with_products, which takes precedence for sums.
Program fuse_reductions(const Program& program, const HasKernel& accepts = {});
// Moves optimizer nodes directly after their last dependency, which shortens the lifetime of gradients. After all
// fusions, which move readers.
Program advance_updates(const Program& program);
// Fuses the optimizer steps of several parameters into one `update_all`. Bit-exact, but keeps their gradients until
// then. Only calls that `accepts` allows. After fuse_updates, which saves more, and advance_updates.
Program join_updates(const Program& program, const AcceptsCall& accepts);

inline bool is_forward(const Program& program, const Node& node) { return program.scope_of(node).is_forward(); }
inline bool is_in(Phase phase, const Program& program, const Node& node) {
  return program.scope_of(node).phase == phase;
}
// Matches a text against a pattern, whose '*' matches any characters, including '/'.
bool matches_pattern(std::string_view text, std::string_view pattern);
// Returns the value that v is a reshape or slice of, directly or indirectly; v usually shares its memory.
ValueId behind_views(const Program& program, ValueId v);
// Returns the source of a broadcast, which elementwise kernels read instead; other values are returned unchanged.
ValueId behind_broadcasts(const Program& program, ValueId v);
// Returns whether the node is a `dot` without out_dtype and accumulate, with two operands of the same type.
bool is_usual_product(const Program& program, const Node& node);
// Returns the axes among the attributes of a product.
AttributeMap axes_of_dot(const AttributeMap& attributes);
// Returns whether the value is all zeros, possibly broadcast.
bool is_zero(const Program& program, ValueId v);
// Returns the index of the last host_call, or -1. Plugin code may throw, so no update may run before it.
int64_t last_own_code(const Program& program);
inline bool is_constant(Op op) { return op == Op::literal || op == Op::full || op == Op::iota; }
inline bool is_leaf(Op op) { return op == Op::input || op == Op::parameter || op == Op::state; }

// Copies a program node by node with replacements. Used by most passes.
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
  // Returns a copy with mapped inputs and no outputs, to be modified and appended.
  Node prepared(const Node& node) const;
  // Appends a node with mapped inputs; its outputs replace those of `original`.
  void put(Node node, const Node& original);
  // Appends a node with mapped inputs and returns its results. If `accepts` (null: always) rejects it, returns nothing
  // and leaves the program unchanged.
  std::optional<std::vector<ValueId>> append_accepted(Node node, const std::vector<TensorType>& types,
                                                      const HasKernel& accepts);
  Program finish();  // maps outputs and updates, verifies

 private:
  const Program& from_;
  Program to_;
  std::vector<ValueId> map_;
};

}  // namespace harmonics::engine
