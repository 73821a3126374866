#include <algorithm>

#include <fmt/core.h>

#include "engine/passes/pass.hpp"

namespace harmonics::engine {

Rewriter::Rewriter(const Program& from) : from_(from), map_(from.values.size(), kNone) {
  to_.name = from.name;
  to_.scopes = from.scopes;
  to_.nodes.reserve(from.nodes.size());
  to_.values.reserve(from.values.size());
}

Node Rewriter::prepared(const Node& node) const {
  Node n = node;
  n.outputs.clear();
  for (ValueId& v : n.inputs) {
    if (map_[v] == kNone)
      throw Error(ErrorKind::Internal, fmt::format("program '{}': a pass lost value %{}", from_.name, v));
    v = map_[v];
  }
  return n;
}

void Rewriter::put(Node node, const Node& original) {
  const uint32_t index = to_.append(std::move(node), output_types(from_, original));
  for (size_t i = 0; i < original.outputs.size(); ++i) map_[original.outputs[i]] = to_.nodes[index].outputs[i];
}

void Rewriter::copy(const Node& node) { put(prepared(node), node); }

std::optional<std::vector<ValueId>> Rewriter::append_accepted(Node node, const std::vector<TensorType>& types,
                                                              const HasKernel& accepts) {
  const size_t nodes = to_.nodes.size(), values = to_.values.size();
  to_.append(std::move(node), types);
  if (!accepts || accepts(to_, to_.nodes.back())) return to_.nodes.back().outputs;
  to_.nodes.resize(nodes);
  to_.values.resize(values);
  return std::nullopt;
}

void Rewriter::splice(const Program& body, const Node& call) {
  std::vector<ValueId> inner(body.values.size(), kNone);
  for (const Node& node : body.nodes) {
    if (node.op == Op::input) {
      inner[node.outputs[0]] = map_[call.inputs.at(std::stoul(node.callee))];
      continue;
    }
    Node n = node;
    n.outputs.clear();
    n.scope = call.scope;
    for (ValueId& v : n.inputs) v = inner[v];
    const uint32_t index = to_.append(std::move(n), output_types(body, node));
    for (size_t i = 0; i < node.outputs.size(); ++i) inner[node.outputs[i]] = to_.nodes[index].outputs[i];
  }
  for (const NamedValue& out : body.outputs) map_[call.outputs.at(std::stoul(out.name))] = inner[out.value];
}

Program Rewriter::finish() {
  const auto renamed = [&](const NamedValue& v) {
    if (map_[v.value] == kNone)
      throw Error(ErrorKind::Internal, fmt::format("program '{}': a pass lost '{}'", from_.name, v.name));
    return NamedValue{v.name, map_[v.value]};
  };
  for (const NamedValue& v : from_.outputs) to_.outputs.push_back(renamed(v));
  for (const NamedValue& v : from_.updates) to_.updates.push_back(renamed(v));
  verify(to_);
  return std::move(to_);
}

bool matches_pattern(std::string_view text, std::string_view pattern) {
  size_t t = 0, p = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

ValueId behind_views(const Program& program, ValueId v) {
  const Node& maker = program.producer(v);
  return maker.op == Op::reshape || maker.op == Op::slice ? behind_views(program, maker.inputs[0]) : v;
}

ValueId behind_broadcasts(const Program& program, ValueId v) {
  const Node& maker = program.producer(v);
  return maker.op == Op::broadcast ? behind_broadcasts(program, maker.inputs[0]) : v;
}

bool is_usual_product(const Program& program, const Node& node) {
  return node.op == Op::dot && !node.attributes.has("out_dtype") && !node.attributes.has("accumulate") &&
         program.type(node.inputs[0]).dtype == program.type(node.inputs[1]).dtype;
}

AttributeMap axes_of_dot(const AttributeMap& attributes) {
  AttributeMap axes;
  for (const char* name : {"lhs_contract", "rhs_contract", "lhs_batch", "rhs_batch"})
    axes.set(name, attributes.integers(name));
  return axes;
}

bool is_zero(const Program& program, ValueId v) {
  const Node& node = program.producer(v);
  return node.op == Op::broadcast ? is_zero(program, node.inputs[0])
                                  : node.op == Op::full && node.attributes.number("value") == 0;
}

int64_t last_own_code(const Program& program) {
  for (auto i = static_cast<int64_t>(program.nodes.size()); i-- > 0;)
    if (program.nodes[static_cast<size_t>(i)].op == Op::host_call) return i;
  return -1;
}

}  // namespace harmonics::engine
