#include "engine/passes/match.hpp"
#include "engine/passes/uses.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

// Returns the functional whose gradients this node scatters to the indices in that functional's result 1, or "".
std::string_view places_of(const Node& node) {
  const FunctionalPtr f = called_by(node);
  return f ? f->traits.places_of : std::string_view();
}

// Backward pass: makes convolution gradients read the operands of max_pool_grad, which scatters gradients, directly.
class Backward {
 public:
  Backward(const Program& program, const AcceptsCall& accepts)
      : from_(program), accepts_(accepts), rewriter_(program) {}

  Program run() {
    for (const Node& node : from_.nodes)
      if (!move_relu(node) && !join(node) && !sum_pooled(node)) rewriter_.copy(node);
    return dce(rewriter_.finish());
  }

 private:
  const Program& to() const { return rewriter_.to(); }
  ValueId append(Node node, const TensorType& type) {
    const uint32_t index = rewriter_.to().append(std::move(node), {type});
    return to().nodes[index].outputs[0];
  }

  // Rewrites select(y <= 0, 0, max_pool_grad(indices, dy)), where y is the input of the pooling, as
  // max_pool_grad(indices, select(largest <= 0, 0, dy)): gradients are non-zero only where y was the maximum.
  bool move_relu(const Node& node) {
    using namespace match;
    ValueId pooled = 0, spread = 0;
    const auto relu_gradient = op(Op::select, op(Op::less_equal, any(pooled), zero()), zero(), any(spread));
    if (node.outputs.size() != 1 || !relu_gradient(from_, node.outputs[0])) return false;
    const Node& unpool = from_.producer(spread);
    const std::string_view pooling = places_of(unpool);
    if (pooling.empty()) return false;
    const Node& pool = from_.producer(unpool.inputs[0]);
    if (pool.op != Op::call || pool.callee != pooling || pool.outputs[1] != unpool.inputs[0]) return false;
    if (pool.inputs[0] != pooled) return false;
    const TensorType& type = from_.type(unpool.inputs[1]);
    Node nothing{Op::full, {}, {}, {}, {}, {}, {}, node.scope};
    nothing.attributes.set("dtype", static_cast<int64_t>(type.dtype))
        .set("shape", type.shape.vector())
        .set("value", 0.0);
    const ValueId none = append(std::move(nothing), type);
    Node cut{Op::less_equal, {}, {rewriter_.mapped(pool.outputs[0]), none}, {}, {}, {}, {}, node.scope};
    const ValueId is_cut = append(std::move(cut), {DType::Bool, type.shape});
    Node kept{Op::select, {}, {is_cut, none, rewriter_.mapped(unpool.inputs[1])}, {}, {}, {}, {}, node.scope};
    Node moved = rewriter_.prepared(unpool);
    moved.inputs[1] = append(std::move(kept), type);
    rewriter_.put(std::move(moved), node);
    return true;
  }

  // Returns the call that computed the value by scattering gradients, or null.
  const Node* unpooling(ValueId old) const {
    const Node& maker = to().producer(rewriter_.mapped(old));
    return places_of(maker).empty() ? nullptr : &maker;
  }

  bool join(const Node& node) {
    if (node.op != Op::call || node.inputs.size() != 2) return false;
    const Node* unpool = unpooling(node.inputs[1]);
    const FunctionalPtr both = unpool ? joined_call(unpool->callee, node.callee) : nullptr;
    if (!both) return false;
    Node joined = rewriter_.prepared(node);
    joined.callee = both->name;
    joined.inputs = {joined.inputs[0], unpool->inputs[0], unpool->inputs[1]};
    if (!accepts_(joined.callee, joined.attributes, input_types(to(), joined), to().scope_of(joined).rounding))
      return false;
    rewriter_.put(std::move(joined), node);
    return true;
  }

  // Rewrites a sum of scattered gradients over whole planes as the sum of the gradients.
  bool sum_pooled(const Node& node) {
    if (node.op != Op::reduce_sum || node.attributes.flag("keep")) return false;
    const Node* unpool = unpooling(node.inputs[0]);
    if (!unpool) return false;
    std::vector<int64_t> axes{0};
    for (int64_t i = 2; i < static_cast<int64_t>(from_.type(node.inputs[0]).shape.rank()); ++i) axes.push_back(i);
    if (node.attributes.integers("axes") != axes) return false;
    Node sum = rewriter_.prepared(node);
    sum.inputs[0] = unpool->inputs[1];
    rewriter_.put(std::move(sum), node);
    return true;
  }

  const Program& from_;
  const AcceptsCall& accepts_;
  Rewriter rewriter_;
};

// Whether both belong to the same part of the model. Only one of them may be a product with a rounding.
bool share_scope(const Program& program, const Node& a, const Node& b) {
  NodeScope scope = program.scope_of(a);
  scope.rounding = program.scope_of(b).rounding;
  return scope == program.scope_of(b);
}

Program join_forward(const Program& program, const AcceptsCall& accepts) {
  const Uses uses(program);
  Rewriter rewriter(program);
  for (const Node& node : program.nodes) {
    const Node* conv = node.op == Op::call && node.inputs.size() == 1 ? &program.producer(node.inputs[0]) : nullptr;
    const bool joins = conv && conv->op == Op::call && uses.once(node.inputs[0]) && share_scope(program, *conv, node);
    const FunctionalPtr both = joins ? joined_call(conv->callee, node.callee) : nullptr;
    if (!both) {
      rewriter.copy(node);
      continue;
    }
    Node joined = rewriter.prepared(*conv);  // dce() removes the original convolution
    joined.callee = both->name;
    for (const auto& [name, value] : node.attributes.entries()) joined.attributes.set("pool_" + name, value);
    if (accepts(joined.callee, joined.attributes, input_types(rewriter.to(), joined),
                rewriter.to().scope_of(joined).rounding))
      rewriter.put(std::move(joined), node);
    else
      rewriter.copy(node);
  }
  return dce(rewriter.finish());
}

}  // namespace

Program fuse_pooling(const Program& program, const AcceptsCall& accepts) {
  return join_forward(Backward(program, accepts).run(), accepts);
}

}  // namespace harmonics::engine
