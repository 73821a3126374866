#include "engine/program/expand_calls.hpp"

#include "engine/program/functional.hpp"

namespace harmonics::engine {

namespace {

constexpr ValueId kNone = ~0u;

class Expander {
 public:
  Expander(Program& program, const std::function<bool(Node&)>& chosen) : program_(program), chosen_(chosen) {}

  void run() {
    std::vector<Node> before = std::move(program_.nodes);
    nodes_.reserve(before.size());
    for (Node& node : before) put(std::move(node));
    program_.nodes = std::move(nodes_);
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
      const std::vector<ValueId>& outputs = program_.nodes[i].outputs;
      for (uint32_t k = 0; k < outputs.size(); ++k) {
        program_.values[outputs[k]].node = i;
        program_.values[outputs[k]].output = k;
      }
    }
  }

 private:
  void put(Node node) {
    if (chosen_(node))
      expand(node);
    else
      nodes_.push_back(std::move(node));
  }

  void expand(const Node& call) {
    const FunctionalPtr functional = FunctionalTable::global().find(call.callee);
    if (!functional) throw Error(ErrorKind::Name, "there is no functional '" + call.callee + "'");
    std::vector<TensorType> types;
    for (ValueId v : call.inputs) types.push_back(program_.type(v));
    const auto body = body_program(*functional, call.attributes, types);
    std::vector<ValueId> outer(body->values.size(), kNone);
    for (const Node* leaf : body->leaves(Op::input)) outer[leaf->outputs[0]] = call.inputs.at(std::stoul(leaf->callee));
    // Body outputs take over the call's value ids. An output that is an input, or is listed twice, is copied by a
    // reshape.
    std::vector<std::pair<ValueId, ValueId>> passed_on;
    for (const NamedValue& out : body->outputs) {
      const ValueId id = call.outputs.at(std::stoul(out.name));
      if (outer[out.value] == kNone)
        outer[out.value] = id;
      else
        passed_on.emplace_back(outer[out.value], id);
    }
    for (const Node& node : body->nodes)
      if (node.op != Op::input) put(placed(*body, node, call, outer));
    for (const auto& [from, to] : passed_on) put(pass(from, to, call.scope));
  }

  Node placed(const Program& body, const Node& node, const Node& call, std::vector<ValueId>& outer) {
    Node n = node;
    n.scope = call.scope;
    for (ValueId& v : n.inputs) v = outer[v];
    for (ValueId& v : n.outputs) {
      if (outer[v] == kNone) {
        outer[v] = static_cast<ValueId>(program_.values.size());
        program_.values.push_back({body.type(v), 0, 0});
      }
      v = outer[v];
    }
    return n;
  }

  Node pass(ValueId from, ValueId to, uint32_t scope) {
    Node n{};
    n.op = Op::reshape;
    n.attributes.set("shape", program_.type(from).shape.vector());
    n.inputs = {from};
    n.outputs = {to};
    n.scope = scope;
    return n;
  }

  Program& program_;
  const std::function<bool(Node&)>& chosen_;
  std::vector<Node> nodes_;
};

}  // namespace

void expand_calls(Program& program, const std::function<bool(Node&)>& chosen) { Expander(program, chosen).run(); }

}  // namespace harmonics::engine
