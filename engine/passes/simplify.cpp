#include <algorithm>

#include "engine/passes/fold.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

class Simplifier {
 public:
  explicit Simplifier(const Program& program) : program_(program), rewriter_(program) {}

  Program run() {
    for (const Node& node : program_.nodes) visit(node);
    return rewriter_.finish();
  }

 private:
  void visit(const Node& original) {
    Node node = rewriter_.prepared(original);
    const std::vector<TensorType> types = output_types(program_, original);
    if (node.op == Op::literal)
      if (auto full = as_full(node.literal)) node = with_scope(*full, original);
    if (const auto constants = fold(rewriter_.to(), node, types); !constants.empty()) {
      for (size_t i = 0; i < constants.size(); ++i)
        put(with_scope(constants[i], original), types[i], original.outputs[i]);
      return;
    }
    join_layout(node);
    if (types.size() == 1) {
      const ValueId same = unchanged(node, types[0]);
      if (same != Rewriter::kNone) return rewriter_.map(original.outputs[0], same);
      as_reshape(node, types[0]);
    }
    rewriter_.put(std::move(node), original);
  }

  static Node with_scope(Node node, const Node& original) {
    node.scope = original.scope;
    return node;
  }
  void put(Node node, const TensorType& type, ValueId stands_for) {
    const uint32_t index = rewriter_.to().append(std::move(node), {type});
    rewriter_.map(stands_for, rewriter_.to().nodes[index].outputs[0]);
  }

  const Program& to() const { return rewriter_.to(); }
  const Node& producer(const Node& node, size_t input) const { return to().producer(node.inputs[input]); }
  const TensorType& type(const Node& node, size_t input) const { return to().type(node.inputs[input]); }

  // Merges reshape of reshape, broadcast of broadcast, transpose of transpose.
  void join_layout(Node& node) const {
    if (node.op != Op::reshape && node.op != Op::broadcast && node.op != Op::transpose) return;
    const Node& before = producer(node, 0);
    if (before.op != node.op) return;
    if (node.op == Op::transpose) {
      std::vector<int64_t> joined;
      for (int64_t axis : node.attributes.integers("permutation"))
        joined.push_back(before.attributes.integers("permutation")[static_cast<size_t>(axis)]);
      node.attributes.set("permutation", joined);
    }
    node.inputs[0] = before.inputs[0];
  }

  // Turns trivial transposes, broadcasts and reductions into reshapes, which cost nothing.
  void as_reshape(Node& node, const TensorType& result) const {
    if (node.op == Op::transpose) {
      const Shape& shape = type(node, 0).shape;
      int64_t last = -1;
      for (int64_t axis : node.attributes.integers("permutation")) {
        if (shape[static_cast<uint32_t>(axis)] == 1) continue;
        if (axis < last) return;
        last = axis;
      }
    } else if (!joins_or_repeats(node.op) || type(node, 0).shape.count() != result.shape.count() ||
               result.shape.count() == 0) {
      return;
    }
    node.op = Op::reshape;
    node.attributes = AttributeMap().set("shape", result.shape.vector());
    join_layout(node);
  }

  static bool joins_or_repeats(Op op) {
    return op == Op::broadcast || op == Op::reduce_sum || op == Op::reduce_prod || op == Op::reduce_max ||
           op == Op::reduce_min;
  }

  // Returns the input that this node returns unchanged, or kNone.
  ValueId unchanged(const Node& node, const TensorType& result) const {
    switch (node.op) {
      case Op::stop_gradient:
        return node.inputs[0];
      // These are the identity if the type does not change, such as a slice of full size.
      case Op::reshape:
      case Op::broadcast:
      case Op::cast:
      case Op::slice:
      case Op::pad:
        return type(node, 0) == result ? node.inputs[0] : Rewriter::kNone;
      case Op::concat:
        return node.inputs.size() == 1 ? node.inputs[0] : Rewriter::kNone;
      case Op::transpose: {
        const auto& p = node.attributes.integers("permutation");
        return std::is_sorted(p.begin(), p.end()) ? node.inputs[0] : Rewriter::kNone;
      }
      case Op::reverse: {
        const auto& axes = node.attributes.integers("axes");
        const bool none = std::all_of(axes.begin(), axes.end(),
                                      [&](int64_t a) { return result.shape[static_cast<uint32_t>(a)] == 1; });
        return none ? node.inputs[0] : Rewriter::kNone;
      }
      case Op::neg:
        return producer(node, 0).op == Op::neg ? producer(node, 0).inputs[0] : Rewriter::kNone;
      case Op::select:
        return node.inputs[1] == node.inputs[2] ? node.inputs[1] : Rewriter::kNone;
      case Op::mul:
        return is_number(node, 1, 1) ? node.inputs[0] : is_number(node, 0, 1) ? node.inputs[1] : Rewriter::kNone;
      case Op::div:
        return is_number(node, 1, 1) ? node.inputs[0] : Rewriter::kNone;
      default:
        return Rewriter::kNone;
    }
  }

  bool is_number(const Node& node, size_t input, double value) const {
    const Node& p = producer(node, input);
    return p.op == Op::full && p.attributes.number("value") == value;
  }

  const Program& program_;
  Rewriter rewriter_;
};

}  // namespace

Program simplify(const Program& program) { return Simplifier(program).run(); }

}  // namespace harmonics::engine
