#include "engine/program/program.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "engine/program/functional.hpp"
#include "engine/program/op.hpp"
#include "engine/program/scan.hpp"

namespace harmonics::engine {

namespace {

std::vector<TensorType> types_at(const Program& program, const std::vector<ValueId>& values) {
  std::vector<TensorType> types;
  types.reserve(values.size());
  for (ValueId v : values) types.push_back(program.type(v));
  return types;
}

std::string node_text(const Program& program, const Node& node) {
  std::string text = node.outputs.empty() ? "" : "%" + std::to_string(node.outputs[0]) + " = ";
  text += op_name(node.op);
  if (!node.callee.empty()) text += " '" + node.callee + "'";
  const NodeScope scope = node.scope < program.scopes.size() ? program.scopes[node.scope] : NodeScope();
  if (scope != NodeScope()) text += " @" + scope.text();
  return scope.origin.empty() ? text : text + " (" + scope.origin + ")";
}

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program), made_(program.values.size(), false) {}

  void run() {
    if (program_.scopes.empty() || program_.scopes[0] != NodeScope()) fail("the first scope must be the empty one");
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) node(i);
    names(program_.outputs, "output");
    names(program_.updates, "update");
    for (const NamedValue& u : program_.updates)
      for (Op op : {Op::parameter, Op::state})
        if (const auto leaf = leaves_.find({op, u.name});
            leaf != leaves_.end() && program_.type(leaf->second) != program_.type(u.value))
          fail("update '" + u.name + "' is " + program_.type(u.value).str() + ", its leaf " +
               program_.type(leaf->second).str());
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::Internal, "program '" + program_.name + "': " + what);
  }
  [[noreturn]] void fail(const Node& n, const std::string& what) const { fail(node_text(program_, n) + ": " + what); }

  void node(uint32_t index) {
    const Node& n = program_.nodes[index];
    if (n.scope >= program_.scopes.size()) fail(n, "its scope does not exist");
    for (ValueId v : n.inputs)
      if (v >= made_.size() || !made_[v]) fail(n, "it reads %" + std::to_string(v) + " before it is made");
    for (uint32_t k = 0; k < n.outputs.size(); ++k) {
      const ValueId v = n.outputs[k];
      if (v >= made_.size() || made_[v])
        fail(n, "it makes %" + std::to_string(v) + ", which is made already or not known");
      if (program_.values[v].node != index || program_.values[v].output != k)
        fail(n, "%" + std::to_string(v) + " names another node as its producer");
      made_[v] = true;
    }
    structure(n);
    types(n);
  }

  void structure(const Node& n) {
    if (is_named_leaf(n.op) || n.op == Op::literal) {
      if (!n.inputs.empty() || n.outputs.size() != 1) fail(n, "a leaf has no operands and one result");
      if (is_named_leaf(n.op) && !leaves_.emplace(std::pair<Op, std::string_view>(n.op, n.callee), n.outputs[0]).second)
        fail(n, "a second leaf of this name");
      if (n.op == Op::literal && (n.literal.empty() || n.literal.raw()->traced())) fail(n, "a literal without numbers");
    }
    if (n.op == Op::call && n.callee.empty()) fail(n, "a call without a name");
    if (n.op == Op::host_call && !n.host) fail(n, "a host call without a function");
    if (n.op == Op::scan && !n.body) fail(n, "a scan without a body");
    if (n.op == Op::scan) verify(*n.body);
  }

  void types(const Node& n) const {
    std::vector<TensorType> want;
    try {
      want = inferred_types(program_, n);
    } catch (const Error& e) {
      fail(n, e.what());
    }
    if (n.outputs.size() != want.size())
      fail(n,
           "it has " + std::to_string(n.outputs.size()) + " results, inference gives " + std::to_string(want.size()));
    for (size_t i = 0; i < want.size(); ++i)
      if (const TensorType& have = program_.type(n.outputs[i]); have != want[i])
        fail(n, "result " + std::to_string(i) + " is " + have.str() + ", inference gives " + want[i].str());
  }

  void names(const std::vector<NamedValue>& list, const char* kind) const {
    std::set<std::string> seen;
    for (const NamedValue& v : list) {
      if (!seen.insert(v.name).second) fail(std::string("two values for ") + kind + " '" + v.name + "'");
      if (v.value >= made_.size() || !made_[v.value])
        fail(std::string(kind) + " '" + v.name + "' is a value nothing makes");
    }
  }

  const Program& program_;
  std::vector<bool> made_;
  std::map<std::pair<Op, std::string_view>, ValueId> leaves_;  // names of the program's nodes
};

}  // namespace

const Node* Program::leaf(Op op, std::string_view wanted) const {
  for (const Node& n : nodes)
    if (n.op == op && n.callee == wanted) return &n;
  return nullptr;
}

std::vector<const Node*> Program::leaves(Op op) const {
  std::vector<const Node*> found;
  for (const Node& n : nodes)
    if (n.op == op) found.push_back(&n);
  return found;
}

const NamedValue* Program::output(std::string_view wanted) const {
  for (const NamedValue& v : outputs)
    if (v.name == wanted) return &v;
  return nullptr;
}

uint32_t Program::scope_index(const NodeScope& scope) {
  const auto at = std::find(scopes.begin(), scopes.end(), scope);
  const auto index = static_cast<uint32_t>(at - scopes.begin());
  if (at == scopes.end()) scopes.push_back(scope);
  return index;
}

uint32_t Program::append(Node node, const std::vector<TensorType>& types) {
  const auto index = static_cast<uint32_t>(nodes.size());
  node.outputs.clear();
  for (uint32_t i = 0; i < types.size(); ++i) {
    node.outputs.push_back(static_cast<ValueId>(values.size()));
    values.push_back({types[i], index, i});
  }
  nodes.push_back(std::move(node));
  return index;
}

std::vector<TensorType> input_types(const Program& program, const Node& node) { return types_at(program, node.inputs); }
std::vector<TensorType> output_types(const Program& program, const Node& node) {
  return types_at(program, node.outputs);
}

bool converts_stored(const Program& program, const Node& node) {
  const auto stored = [&](ValueId v) { return is_stored(program.type(v).dtype); };
  return std::any_of(node.inputs.begin(), node.inputs.end(), stored) ||
         std::any_of(node.outputs.begin(), node.outputs.end(), stored);
}

std::vector<TensorType> inferred_types(const Program& program, const Node& node) {
  const std::vector<TensorType> inputs = input_types(program, node);
  switch (node.op) {
    case Op::input:
    case Op::parameter:
    case Op::state:
    case Op::host_call:
      return output_types(program, node);
    case Op::literal:
      return {type_of(node.literal)};
    case Op::call: {
      const FunctionalPtr functional = FunctionalTable::global().find(node.callee);
      if (!functional) throw Error(ErrorKind::Name, "there is no functional '" + node.callee + "'");
      const auto body = body_program(*functional, node.attributes, inputs);
      std::vector<TensorType> types;
      for (const NamedValue& v : body->outputs) types.push_back(body->type(v.value));
      return types;
    }
    case Op::scan:
      return infer_scan(node, inputs);
    default:
      return op_row(node.op).infer(node.attributes, inputs);
  }
}

std::vector<uint32_t> count_uses(const Program& program) {
  std::vector<uint32_t> uses(program.values.size(), 0);
  for (const Node& n : program.nodes)
    for (ValueId v : n.inputs) ++uses[v];
  for (const NamedValue& v : program.outputs) ++uses[v.value];
  for (const NamedValue& v : program.updates) ++uses[v.value];
  return uses;
}

void verify(const Program& program) { Verifier(program).run(); }

void renumber(Program& program) {
  std::vector<ValueId> now(program.values.size(), 0);
  std::vector<ValueInfo> values;
  std::vector<NodeScope> scopes{NodeScope()};
  std::map<NodeScope, uint32_t> scope_index{{NodeScope(), 0}};
  for (uint32_t i = 0; i < program.nodes.size(); ++i) {
    Node& node = program.nodes[i];
    const auto [it, fresh] = scope_index.try_emplace(program.scopes[node.scope], static_cast<uint32_t>(scopes.size()));
    if (fresh) scopes.push_back(it->first);
    node.scope = it->second;
    for (ValueId& v : node.inputs) v = now[v];
    for (uint32_t k = 0; k < node.outputs.size(); ++k) {
      ValueId& v = node.outputs[k];
      now[v] = static_cast<ValueId>(values.size());
      values.push_back({program.values[v].type, i, k});
      v = now[v];
    }
  }
  program.values = std::move(values);
  program.scopes = std::move(scopes);
  for (NamedValue& v : program.outputs) v.value = now[v.value];
  for (NamedValue& v : program.updates) v.value = now[v.value];
}

}  // namespace harmonics::engine
