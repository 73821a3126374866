#include <map>
#include <optional>

#include "engine/passes/pass.hpp"
#include "engine/passes/uses.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

// Returns the functional of a call with default attributes, otherwise null.
FunctionalPtr usual_call(const Node& node) {
  const FunctionalPtr f = called_by(node);
  return f && has_defaults(f->signature, node.attributes) ? f : nullptr;
}

class DerivativeKeeper {
 public:
  DerivativeKeeper(const Program& program, uint64_t least_bytes, const AcceptsCall& accepts)
      : program_(program), uses_(program), rewriter_(program) {
    for (uint32_t i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      if (node.op != Op::call || !is_forward(program, node)) continue;
      const auto gradient = gradient_of(i, least_bytes);
      if (gradient && can_finish(program, program.producer(node.inputs[0]), node.callee, accepts))
        gradients_.emplace(*gradient, i);
    }
  }

  Program run() {
    if (gradients_.empty()) return program_;
    std::map<uint32_t, uint32_t> by_activation;
    for (const auto& [gradient, activation] : gradients_) by_activation.emplace(activation, gradient);
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
      const Node& node = program_.nodes[i];
      if (const auto found = gradients_.find(i); found != gradients_.end()) {
        Node product{Op::mul, {}, {derivatives_.at(i), rewriter_.mapped(node.inputs[1])}, {}, {}, {}, {}, node.scope};
        rewriter_.put(std::move(product), node);
        continue;
      }
      rewriter_.copy(node);
      if (const auto found = by_activation.find(i); found != by_activation.end())
        derivatives_[found->second] = derivative(node, program_.nodes[found->second]);
    }
    return rewriter_.finish();
  }

 private:
  // Returns the gradient of the activation `index`, if it is the only late reader of the argument.
  std::optional<uint32_t> gradient_of(uint32_t index, uint64_t least_bytes) const {
    const Node& node = program_.nodes[index];
    if (node.inputs.size() != 1 || !usual_call(node)) return std::nullopt;
    const ValueId x = node.inputs[0];
    const TensorType& type = program_.type(x);
    if (type.dtype != DType::F32 || type.bytes() < least_bytes || uses_.is_result(x) ||
        is_leaf(program_.producer(x).op))
      return std::nullopt;
    std::optional<uint32_t> gradient;
    for (const uint32_t reader : uses_.readers(x)) {
      const Node& late = program_.nodes[reader];
      if (is_forward(program_, late)) continue;
      const FunctionalPtr f = usual_call(late);
      const bool fits = f && f->traits.gradient_of == node.callee && late.inputs.size() == 2 && late.inputs[1] != x;
      if (gradient || !fits || gradients_.count(reader)) return std::nullopt;
      gradient = reader;
    }
    return gradient;
  }

  // Appends the derivative after the activation: the gradient for ones, in the activation's scope.
  ValueId derivative(const Node& activation, const Node& gradient) {
    const TensorType& type = program_.type(activation.inputs[0]);
    const TensorType scalar{type.dtype, {}};
    Node one{Op::full, {}, {}, {}, {}, {}, {}, activation.scope};
    one.attributes.set("dtype", static_cast<int64_t>(type.dtype))
        .set("shape", std::vector<int64_t>{})
        .set("value", 1.0);
    Node ones{Op::broadcast, {}, {append(std::move(one), scalar)}, {}, {}, {}, {}, activation.scope};
    ones.attributes.set("shape", type.shape.vector());
    Node call = rewriter_.prepared(activation);
    call.callee = gradient.callee;
    call.attributes = gradient.attributes;
    call.inputs.push_back(append(std::move(ones), type));
    return append(std::move(call), type);
  }
  ValueId append(Node node, const TensorType& type) {
    const uint32_t index = rewriter_.to().append(std::move(node), {type});
    return rewriter_.to().nodes[index].outputs[0];
  }

  const Program& program_;
  const Uses uses_;
  Rewriter rewriter_;
  std::map<uint32_t, uint32_t> gradients_;   // activations by gradient, as nodes of the old program
  std::map<uint32_t, ValueId> derivatives_;  // by gradient, as values of the new program
};

}  // namespace

Program keep_derivatives(const Program& program, uint64_t least_bytes, const AcceptsCall& accepts) {
  return DerivativeKeeper(program, least_bytes, accepts).run();
}

}  // namespace harmonics::engine
