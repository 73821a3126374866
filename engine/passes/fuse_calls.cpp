#include "engine/passes/fold.hpp"
#include "engine/passes/uses.hpp"
#include "engine/plugin/range.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

// Returns the activation that the node applies to its first input, as named by the attribute `activation`, or "".
std::string_view activation_by(const Program& program, const Node& node) {
  if (node.op == Op::maximum) {
    const Node& bound = program.producer(node.inputs[1]);
    return bound.op == Op::full && bound.attributes.number("value") == 0 ? "relu" : "";
  }
  if (const FunctionalPtr f = called_by(node))
    return f->signature.inputs.size() == 1 && has_defaults(f->signature, node.attributes) ? std::string_view(f->name)
                                                                                          : "";
  return node.inputs.size() == 1 ? op_name(node.op) : "";
}

// Returns whether the call has an attribute `activation` that accepts this one.
bool takes_activation(const Node& call, std::string_view activation) {
  const FunctionalPtr f = called_by(call);
  const AttributeSpec* spec = f && !activation.empty() ? f->signature.attribute("activation") : nullptr;
  return spec && in_range(std::string(activation), spec->range);
}

}  // namespace

Program fuse_calls(const Program& program, const AcceptsCall& accepts) {
  const Uses uses(program);
  Rewriter rewriter(program);
  for (const Node& node : program.nodes) {
    const Node* call = node.inputs.empty() ? nullptr : &program.producer(node.inputs[0]);
    const bool joins = call && call->op == Op::call && call->outputs.size() == 1 && uses.once(node.inputs[0]) &&
                       call->attributes.text("activation", "").empty() &&
                       is_forward(program, *call) == is_forward(program, node);
    const std::string activation = joins ? std::string(activation_by(program, node)) : "";
    AttributeMap attributes;
    const bool taken = joins && takes_activation(*call, activation);
    if (taken) attributes = AttributeMap(call->attributes).set("activation", activation);
    const Rounding rounding = call ? program.scope_of(*call).rounding : Rounding::none;
    if (!taken || !accepts(call->callee, attributes, input_types(program, *call), rounding)) {
      rewriter.copy(node);
      continue;
    }
    Node fused = rewriter.prepared(*call);  // dce() removes the original call
    fused.attributes = attributes;
    rewriter.put(std::move(fused), node);
  }
  return dce(rewriter.finish());
}

}  // namespace harmonics::engine
