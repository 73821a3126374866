#include <algorithm>
#include <map>

#include "engine/passes/pass.hpp"
#include "engine/program/scan.hpp"

namespace harmonics::engine {

namespace {

// A scan without unused ys and without operands that only those read.
struct TrimmedScan {
  Node node;
  std::vector<size_t> results;  // indices of the remaining results in the original
};

TrimmedScan trimmed(const Node& scan, const std::vector<bool>& used) {
  const ScanLayout at(scan);
  TrimmedScan t{scan, {}};
  Program body = *scan.body;
  body.outputs.clear();
  for (size_t i = 0; i < scan.outputs.size(); ++i) {
    if (i >= at.carries && !used[scan.outputs[i]]) continue;
    body.outputs.push_back({std::to_string(t.results.size()), scan.body->outputs[i].value});
    t.results.push_back(i);
  }
  body = dce(body);
  std::map<std::string, std::string> names;
  t.node.inputs.clear();
  int64_t constants = 0;
  for (size_t i = 0; i < scan.inputs.size(); ++i) {
    const std::string name = std::to_string(i);
    if (i >= at.carries && !body.leaf(Op::input, name)) continue;
    constants += i >= at.carries && i < at.steady();
    names[name] = std::to_string(t.node.inputs.size());
    t.node.inputs.push_back(scan.inputs[i]);
  }
  for (Node& node : body.nodes)
    if (node.op == Op::input) node.callee = names.at(node.callee);
  t.node.attributes.set("constants", constants);
  t.node.body = std::make_shared<const Program>(std::move(body));
  return t;
}

// Whether dce() would return the program as it is. Scans are not looked into.
bool is_needed_whole(const Program& program) {
  const std::vector<uint32_t> uses = count_uses(program);
  return std::all_of(program.nodes.begin(), program.nodes.end(), [&](const Node& node) {
    return node.op != Op::scan &&
           std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return uses[v]; });
  });
}

}  // namespace

Program dce(Program program) {
  if (is_needed_whole(program)) return program;
  std::vector<bool> used(program.values.size(), false), keep(program.nodes.size(), false);
  std::map<size_t, TrimmedScan> scans;
  for (const NamedValue& v : program.outputs) used[v.value] = true;
  for (const NamedValue& v : program.updates) used[v.value] = true;
  for (size_t i = program.nodes.size(); i-- > 0;) {
    const Node& node = program.nodes[i];
    for (ValueId v : node.outputs) keep[i] = keep[i] || used[v];
    if (!keep[i]) continue;
    const bool scans_on = node.op == Op::scan;
    if (scans_on) scans.emplace(i, trimmed(node, used));
    for (ValueId v : scans_on ? scans.at(i).node.inputs : node.inputs) used[v] = true;
  }
  Rewriter rewriter(program);
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    if (!keep[i]) continue;
    const auto scan = scans.find(i);
    if (scan == scans.end()) {
      rewriter.copy(program.nodes[i]);
      continue;
    }
    std::vector<TensorType> types;
    for (size_t r : scan->second.results) types.push_back(program.type(program.nodes[i].outputs[r]));
    const uint32_t index = rewriter.to().append(rewriter.prepared(scan->second.node), types);
    for (size_t k = 0; k < types.size(); ++k)
      rewriter.map(program.nodes[i].outputs[scan->second.results[k]], rewriter.to().nodes[index].outputs[k]);
  }
  return rewriter.finish();
}

}  // namespace harmonics::engine
