#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "engine/passes/pass.hpp"
#include "engine/passes/uses.hpp"

namespace harmonics::engine {

namespace {

// Updates by the same optimizer with equal attributes, learning rate and step number.
struct Group {
  std::vector<uint32_t> nodes;  // in program order
  size_t tensors = 0;           // tensors per parameter

  bool takes(const Program& program, uint32_t index, size_t own) const {
    const Node &first = program.nodes[nodes.front()], &node = program.nodes[index];
    return first.callee == node.callee && first.attributes == node.attributes && tensors == own &&
           first.inputs.size() == node.inputs.size() &&
           std::equal(first.inputs.begin() + static_cast<std::ptrdiff_t>(own), first.inputs.end(),
                      node.inputs.begin() + static_cast<std::ptrdiff_t>(own));
  }
};

class UpdateJoiner {
 public:
  UpdateJoiner(const Program& program, const AcceptsCall& accepts)
      : program_(program), accepts_(accepts), rewriter_(program), uses_(program) {}

  Program run() {
    find_groups();
    if (at_.empty()) return program_;
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
      if (const auto group = at_.find(i); group != at_.end())
        put(groups_[group->second]);
      else if (!joined_.count(i))
        rewriter_.copy(program_.nodes[i]);
    }
    return rewriter_.finish();
  }

 private:
  // Returns whether the update may run later: no node reads its results, and they are not outputs.
  bool may_wait(const Node& node) const {
    const FunctionalPtr f = called_by(node);
    return f && f->traits.update == UpdateKind::one &&
           std::all_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId v) { return uses_.readers(v).empty() && !uses_.is_output(v); });
  }

  void find_groups() {
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
      const Node& node = program_.nodes[i];
      if (!may_wait(node)) continue;
      const size_t tensors = node.outputs.size() + 1;
      const auto group =
          std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.takes(program_, i, tensors); });
      if (group != groups_.end())
        group->nodes.push_back(i);
      else
        groups_.push_back({{i}, tensors});
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].nodes.size() < 2 || !accepted(groups_[g])) continue;
      at_.emplace(groups_[g].nodes.back(), g);
      joined_.insert(groups_[g].nodes.begin(), groups_[g].nodes.end());
    }
  }

  // Returns the tensors of all parameters, then the shared operands.
  std::vector<ValueId> inputs(const Group& g) const {
    std::vector<ValueId> all;
    for (uint32_t i : g.nodes)
      all.insert(all.end(), program_.nodes[i].inputs.begin(),
                 program_.nodes[i].inputs.begin() + static_cast<std::ptrdiff_t>(g.tensors));
    const std::vector<ValueId>& last = program_.nodes[g.nodes.back()].inputs;
    all.insert(all.end(), last.begin() + static_cast<std::ptrdiff_t>(g.tensors), last.end());
    return all;
  }
  AttributeMap attributes(const Group& g) const {
    AttributeMap a = program_.nodes[g.nodes.front()].attributes;
    return a.set("update", program_.nodes[g.nodes.front()].callee)
        .set("parameters", static_cast<int64_t>(g.nodes.size()));
  }
  bool accepted(const Group& g) const {
    std::vector<TensorType> types;
    for (ValueId v : inputs(g)) types.push_back(program_.type(v));
    return accepts_("update_all", attributes(g), types, Rounding::none);
  }

  // Emits the joined update at the position of the last one, where all gradients are available.
  void put(const Group& g) {
    Node node{};
    node.op = Op::call;
    node.callee = "update_all";
    node.attributes = attributes(g);
    node.scope = rewriter_.to().scope_index({"", Phase::optimizer});
    for (ValueId v : inputs(g)) node.inputs.push_back(rewriter_.mapped(v));
    std::vector<TensorType> types;
    std::vector<ValueId> results;
    for (uint32_t i : g.nodes)
      for (ValueId v : program_.nodes[i].outputs) {
        results.push_back(v);
        types.push_back(program_.type(v));
      }
    const uint32_t index = rewriter_.to().append(std::move(node), types);
    for (size_t i = 0; i < results.size(); ++i) rewriter_.map(results[i], rewriter_.to().nodes[index].outputs[i]);
  }

  const Program& program_;
  const AcceptsCall& accepts_;
  Rewriter rewriter_;
  Uses uses_;
  std::vector<Group> groups_;
  std::map<uint32_t, size_t> at_;  // by node: the group emitted there
  std::set<uint32_t> joined_;
};

}  // namespace

Program join_updates(const Program& program, const AcceptsCall& accepts) {
  return UpdateJoiner(program, accepts).run();
}

}  // namespace harmonics::engine
