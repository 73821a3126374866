// Program -> Program functions and the small tools they share.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/program/functional.hpp"
#include "engine/program/program.hpp"

namespace harmonics {

// Asked about a node of a program: is there a kernel for it?
using HasKernel = std::function<bool(const Program&, const Node&)>;
// Asked about a call that is not there yet: functional, attributes, types of its inputs.
using AcceptsCall = std::function<bool(const std::string&, const AttributeMap&, const std::vector<TensorType>&)>;

// Each keeps the meaning: same outputs, same updates, bit for bit. Updates count as uses.
//
// Equal nodes once; constants are compared by content; random nodes are equal when counter and stream are. Nodes in the
// scope "recomputed/" are never joined with nodes outside it.
Program cse(const Program& program);
Program dce(const Program& program);  // nodes nothing uses go; input, parameter and state leaves stay only when used
// Algebra that keeps bits (x + 0 does not: it loses the sign of zero): folds nodes over constants of at most 4096 elements,
// removes what changes nothing, joins neighbouring reshapes, transposes and broadcasts. stop_gradient goes too, so this is
// for programs that have their gradients already.
Program simplify(const Program& program);
// Which parameters and states of two dimensions lie in memory with rows and columns exchanged; `preferred` is what this
// program would like.
using IsTransposed = std::function<bool(const std::string& name, const TensorType& type, bool preferred)>;
// Weights of affine maps as [in, out] where `is_transposed` says so: then the zeros of what is multiplied with them save
// whole rows. What reads them, their slopes and their moments follow; {transposed = true} marks the leaves.
Program transpose_weights(const Program& program, const IsTransposed& is_transposed);
// Plain gradient descent and the product that makes its slope into one `sgd_outer`, with the slope of the map's input
// where one sample makes all three out of one reading of the weight. Rounds differently; only where `accepts` the call.
Program fuse_updates(const Program& program, const AcceptsCall& accepts);
// Bytes times a scale (an image's, say) that nothing reads but `linear` and `sgd_outer`: these read the bytes. Where `accepts` takes all of
// these calls with {scale}; same bits.
Program fuse_scales(const Program& program, const AcceptsCall& accepts);
// Sums of a product and what is there before it and dies with the sum (slopes of a value that is used twice, gradients gathered
// over micro-batches in a state) into one `dot_add`, which writes over the sum. Rounds differently; only where `accepts` the call.
Program accumulate_products(const Program& program, const AcceptsCall& accepts);
// A product and the sum of one of its operands over the axes it joins (slopes of a weight and of its bias) into one `dot_sum`, which
// reads the operand once. May round differently; only where `accepts` the call.
Program sum_with_products(const Program& program, const AcceptsCall& accepts);
// {linear -> relu, tanh, logistic, gelu}, {conv -> relu} ... into one call {activation}; rows of one table. Only where nothing
// else reads the intermediate value and `accepts` says so for the joined call.
Program fuse_calls(const Program& program, const AcceptsCall& accepts);
// Max pooling and the convolution before it as one: forward conv_max_pool where nothing else reads the convolution's result;
// backward conv_max_pool_grad_input and _weight, which see only the places that were largest. For that relu's gradient moves
// behind max_pool's, with the same bits; only the slope of the bias is summed in another order. Where `accepts` says so.
Program fuse_pooling(const Program& program, const AcceptsCall& accepts);
// Forward nodes in scopes that match a pattern ("*/attention") are cloned before their first use by later nodes, so that
// their results need not be kept. Clones carry the scope "recomputed/" + the original's. Nodes in a scope that ends in
// "residual" are kept always, and small second results (an attention's log-sum-exp) are used as the forward left them.
Program recompute(const Program& program, const std::vector<std::string>& scope_patterns);
// Calls for which `has_kernel` is false are replaced by their body, recursively. `before` may change the program's nodes before
// each round.
Program inline_calls(const Program& program, const HasKernel& has_kernel, const std::function<void(Program&)>& before = {});
// Chains of elementwise nodes (and broadcasts of their inputs) into fused_elementwise nodes, kept where `accepts` (null:
// always) says so.
Program fuse_elementwise(const Program& program, const HasKernel& accepts = {});
// Elementwise operations and the reduction of their result into a fused_reduce: where nobody else reads that result, it is never
// stored. Where `accepts` (null: always) says so.
Program fuse_reductions(const Program& program, const HasKernel& accepts = {});
// Nodes in "optimizer/" scopes right after the last thing they wait for, so that a gradient lives no longer than its update.
Program advance_updates(const Program& program);
// Steps of parameters that an optimizer takes alike as one `update_all` of them all, with the same bits; slopes live until then. Where
// `accepts` says so.
Program join_updates(const Program& program, const AcceptsCall& accepts);

// The parts a training step runs in, by scope: everything under "gradient/", "optimizer/" and "recomputed/" comes after
// the forward pass.
bool is_forward_scope(std::string_view scope);
inline bool is_forward(const Program& program, const Node& node) { return is_forward_scope(program.scopes[node.scope]); }
bool is_recomputed(const Program& program, const Node& node);
// '*' stands for any characters, '/' included.
bool matches_pattern(std::string_view text, std::string_view pattern);
// The value whose memory v most likely shares: what lies under reshapes and slices.
ValueId behind_views(const Program& program, ValueId v);
// Zeros, stretched or not?
bool is_zero(const Program& program, ValueId v);
// The last node that is a plugin's own code: it may throw, and nothing may have been updated by then. -1: there is none.
int64_t last_own_code(const Program& program);
// How often each value is read, by nodes, outputs and updates.
std::vector<uint32_t> count_uses(const Program& program);
std::vector<TensorType> input_types(const Program& program, const Node& node);
std::vector<TensorType> output_types(const Program& program, const Node& node);
// Constants: literal, full, iota.
inline bool is_constant(Op op) { return op == Op::literal || op == Op::full || op == Op::iota; }
inline bool is_leaf(Op op) { return op == Op::input || op == Op::parameter || op == Op::state; }

// Copies a program node by node with replacements; what passes are written with.
class Rewriter {
 public:
  explicit Rewriter(const Program& from);
  static constexpr ValueId kNone = ~0u;
  Program& to() { return to_; }
  const Program& to() const { return to_; }
  ValueId mapped(ValueId old) const { return map_[old]; }
  void map(ValueId old, ValueId now) { map_[old] = now; }
  void copy(const Node& node);                         // with its inputs mapped
  void splice(const Program& body, const Node& call);  // a body in the place of a call node, in the call's scope
  // A node with its inputs mapped and no outputs yet, for a pass that changes it before appending.
  Node prepared(const Node& node) const;
  // Appends a node whose inputs are mapped already; its outputs stand for those of `original`.
  void put(Node node, const Node& original);
  // A node whose inputs are mapped already: its results, or nothing, with the program as before, where `accepts` (null: always)
  // says no to it.
  std::optional<std::vector<ValueId>> append_accepted(Node node, const std::vector<TensorType>& types, const HasKernel& accepts);
  Program finish();  // outputs and updates mapped, verified

 private:
  const Program& from_;
  Program to_;
  std::vector<ValueId> map_;
};

}  // namespace harmonics
