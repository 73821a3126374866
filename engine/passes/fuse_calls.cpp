#include "engine/passes/fold.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

// A call that accepts a fused activation, and a test for nodes that compute this activation.
struct Row {
  std::string_view callee;  // has the attribute `activation`
  std::string_view activation;
  bool (*computes)(const Program& program, const Node& node);
};

bool calls(const Node& node, std::string_view callee) {
  return node.op == Op::call && node.callee == callee && node.attributes.empty();
}
bool is_relu(const Program& program, const Node& node) {
  if (calls(node, "relu")) return true;
  if (node.op != Op::maximum) return false;
  const Node& bound = program.producer(node.inputs[1]);
  return bound.op == Op::full && bound.attributes.number("value") == 0;
}
bool is_gelu(const Program&, const Node& node) {
  return node.op == Op::call && node.callee == "gelu" && node.attributes.text("approximate", "none") == "none";
}
bool is_tanh(const Program&, const Node& node) { return node.op == Op::tanh; }
bool is_logistic(const Program&, const Node& node) { return node.op == Op::logistic; }

constexpr Row kRows[] = {
    {"linear", "relu", is_relu},         {"linear", "gelu", is_gelu}, {"linear", "tanh", is_tanh},
    {"linear", "logistic", is_logistic}, {"conv", "relu", is_relu},
};

const Row* row_for(const Program& program, const Node& call, const Node& activation) {
  for (const Row& row : kRows)
    if (call.callee == row.callee && row.computes(program, activation)) return &row;
  return nullptr;
}

}  // namespace

Program fuse_calls(const Program& program, const AcceptsCall& accepts) {
  const std::vector<uint32_t> uses = count_uses(program);
  Rewriter rewriter(program);
  for (const Node& node : program.nodes) {
    const Node* call = node.inputs.empty() ? nullptr : &program.producer(node.inputs[0]);
    const bool joins = call && call->op == Op::call && call->outputs.size() == 1 && uses[node.inputs[0]] == 1 &&
                       call->attributes.text("activation", "").empty() &&
                       is_forward(program, *call) == is_forward(program, node);
    const Row* row = joins ? row_for(program, *call, node) : nullptr;
    AttributeMap attributes;
    if (row) attributes = AttributeMap(call->attributes).set("activation", std::string(row->activation));
    if (!row || !accepts(call->callee, attributes, input_types(program, *call))) {
      rewriter.copy(node);
      continue;
    }
    Node fused = rewriter.prepared(*call);  // the original call stays behind, unused
    fused.attributes = attributes;
    rewriter.put(std::move(fused), node);
  }
  return dce(rewriter.finish());
}

}  // namespace harmonics::engine
