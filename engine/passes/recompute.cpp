#include <algorithm>
#include <unordered_map>

#include "engine/passes/pass.hpp"
#include "engine/passes/recomputation.hpp"

namespace harmonics::engine {

namespace {

class Recomputer {
 public:
  Recomputer(const Program& program, const Recomputation& what)
      : program_(program), rewriter_(program), cloned_(program.nodes.size(), false) {
    std::vector<bool> kept(program.values.size(), false);  // needed after the step
    for (const NamedValue& v : program.outputs) kept[v.value] = true;
    for (const NamedValue& v : program.updates) kept[v.value] = true;
    std::vector<uint32_t> of_node(program.nodes.size(), 0);
    if (what.parts || what.cheapest) of_node = parts_of_blocks(program);
    const std::vector<bool> cheapest = cheapest_nodes(program, of_node, what.cheapest);
    for (uint32_t i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      const std::string scope = program.scope_of(node).text();
      const bool own_code = node.op == Op::host_call;  // plugin code may be slow or stateful
      // Views of recomputable results are recomputed too, because they would keep the memory alive.
      const bool view = (node.op == Op::reshape || node.op == Op::slice || node.op == Op::transpose) &&
                        recomputable_[program.values[node.inputs[0]].node];
      const bool matches = view || (!own_code && ((of_node[i] & what.parts) || cheapest[i])) ||
                           std::any_of(what.scopes.begin(), what.scopes.end(),
                                       [&](const std::string& p) { return matches_pattern(scope, p); });
      const bool lives = std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return kept[v]; });
      recomputable_.push_back(matches && !lives && is_forward(program, node) && !scope.ends_with("residual") &&
                              !is_leaf(node.op) && !is_constant(node.op));
    }
  }

  Program run() {
    for (const Node& node : program_.nodes) {
      if (is_forward(program_, node)) {
        rewriter_.copy(node);
        continue;
      }
      for (ValueId v : node.inputs) clone(v);
      Node later = node;
      later.outputs.clear();
      for (ValueId& v : later.inputs) v = late(v);
      rewriter_.put(std::move(later), node);
    }
    return rewriter_.finish();
  }

 private:
  bool from_clone(ValueId v) const {
    const ValueInfo& info = program_.values[v];
    if (!recomputable_[info.node]) return false;
    const Node& node = program_.nodes[info.node];
    return info.output == 0 || program_.type(v).bytes() * 8 > program_.type(node.outputs[0]).bytes();
  }
  ValueId late(ValueId v) const {
    const auto it = clones_.find(v);
    return it != clones_.end() && from_clone(v) ? it->second : rewriter_.mapped(v);
  }

  // Clones the producer of v and its recomputable inputs. Called at the first use after the forward pass.
  void clone(ValueId v) {
    if (!from_clone(v)) return;
    const uint32_t index = program_.values[v].node;
    if (cloned_[index]) return;
    cloned_[index] = true;
    Node node = program_.nodes[index];
    for (ValueId input : node.inputs) clone(input);
    for (ValueId& input : node.inputs) input = late(input);
    const std::vector<ValueId> outputs = std::move(node.outputs);
    node.outputs.clear();
    node.scope = recomputed_scope(node.scope);
    const uint32_t made = rewriter_.to().append(std::move(node), output_types(program_, program_.nodes[index]));
    for (size_t i = 0; i < outputs.size(); ++i) clones_[outputs[i]] = rewriter_.to().nodes[made].outputs[i];
  }

  uint32_t recomputed_scope(uint32_t scope) {
    const NodeScope& of = program_.scopes[scope];
    return rewriter_.to().scope_index(
        {of.phase == Phase::forward ? of.path : of.text(), Phase::recomputed, of.origin, of.rounding});
  }

  const Program& program_;
  Rewriter rewriter_;
  std::vector<bool> recomputable_, cloned_;      // by node
  std::unordered_map<ValueId, ValueId> clones_;  // by forward value
};

}  // namespace

Program recompute_parts(const Program& program, const Recomputation& what) {
  if (what.none()) return program;
  return Recomputer(program, what).run();
}

Program recompute(const Program& program, const std::vector<std::string>& scope_patterns) {
  Recomputation what;
  what.scopes = scope_patterns;
  return recompute_parts(program, what);
}

}  // namespace harmonics::engine
