#include "engine/program/interpret.hpp"

#include "engine/program/host_function.hpp"
#include "engine/program/op.hpp"
#include "engine/program/scan.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

Values call_body(const Node& node, const Values& inputs) {
  const FunctionalPtr functional = FunctionalTable::global().find(node.callee);
  if (!functional) throw Error(ErrorKind::Name, "there is no functional '" + node.callee + "'");
  std::map<std::string, HTensor> leaves;
  for (size_t i = 0; i < inputs.size(); ++i) leaves[std::to_string(i)] = inputs[i];
  return interpret(*body_program(*functional, node.attributes, types_of(inputs)), leaves);
}

HTensor leaf_value(const Program& program, const Node& node, const std::map<std::string, HTensor>& leaves) {
  const std::string what = std::string(op_name(node.op)) + " '" + node.callee + "'";
  const auto it = leaves.find(node.callee);
  if (it == leaves.end() || it->second.empty()) throw Error(ErrorKind::Name, what + " has no value");
  const TensorType& want = program.type(node.outputs[0]);
  if (type_of(it->second) != want)
    throw Error(ErrorKind::Shape, what + " is " + want.str() + ", the value given is " + type_of(it->second).str());
  return it->second;
}

}  // namespace

Values evaluate_op(Op op, const AttributeMap& attributes, const std::vector<TensorType>& types, const Values& inputs) {
  const OpRow& row = op_row(op);
  if (!row.evaluate) throw Error(ErrorKind::Internal, std::string(row.name) + " cannot be evaluated by itself");
  std::vector<ConstView> from;
  for (const HTensor& t : inputs) from.push_back({type_of(t), t.raw()->storage->data()});
  Values results;
  std::vector<View> to;
  for (const TensorType& type : types) {
    auto storage = std::make_shared<Storage>(type.bytes());
    to.push_back({type, storage->data()});
    results.push_back(make_value(type, std::move(storage)));
  }
  row.evaluate(attributes, from, to);
  return results;
}

Values evaluate_node(const Node& node, const std::vector<TensorType>& types, const Values& inputs) {
  if (node.op == Op::literal) return {node.literal};
  if (node.op == Op::call) return call_body(node, inputs);
  if (node.op == Op::host_call) {
    const TracePause pause;
    return node.host->run(inputs);
  }
  if (node.op == Op::scan) return evaluate_scan(node, types, inputs);
  return evaluate_op(node.op, node.attributes, types, inputs);
}

Values interpret(const Program& program, const std::map<std::string, HTensor>& leaves) {
  std::vector<uint32_t> uses = count_uses(program);
  Values values(program.values.size());
  for (const Node& node : program.nodes) {
    if (is_named_leaf(node.op)) {
      values[node.outputs[0]] = leaf_value(program, node, leaves);
      continue;
    }
    Values inputs;
    for (ValueId v : node.inputs) inputs.push_back(values[v]);
    std::vector<TensorType> types;
    for (ValueId v : node.outputs) types.push_back(program.type(v));
    Values results = evaluate_node(node, types, inputs);
    for (size_t i = 0; i < node.outputs.size(); ++i) values[node.outputs[i]] = std::move(results.at(i));
    for (ValueId v : node.inputs)
      if (--uses[v] == 0) values[v] = {};
  }
  Values results;
  for (const NamedValue& v : program.outputs) results.push_back(values[v.value]);
  for (const NamedValue& v : program.updates) results.push_back(values[v.value]);
  return results;
}

}  // namespace harmonics::engine
