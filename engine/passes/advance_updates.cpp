#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "engine/passes/pass.hpp"
#include "engine/passes/uses.hpp"

namespace harmonics::engine {

namespace {

class Scheduler {
 public:
  explicit Scheduler(const Program& program)
      : program_(program), key_(program.nodes.size()), roots_(program, Uses::Of::roots) {
    std::iota(key_.begin(), key_.end(), 0u);
    for (uint32_t i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      if (node.op == Op::host_call && !is_forward(program, node) && !in_optimizer(node)) last_own_code_ = i;
      if (first_later_ == program.nodes.size() && !is_forward(program, node) && !in_optimizer(node)) first_later_ = i;
    }
    std::unordered_multimap<std::string_view, ValueId> leaves;
    for (const Op op : {Op::state, Op::parameter})
      for (const Node* leaf : program.leaves(op)) leaves.emplace(leaf->callee, leaf->outputs[0]);
    for (const NamedValue& update : program.updates) {
      const auto [begin, end] = leaves.equal_range(update.name);
      for (auto leaf = begin; leaf != end; ++leaf) replaced_[program.values[update.value].node].push_back(leaf->second);
    }
  }

  Program run() {
    for (uint32_t i = 0; i < program_.nodes.size(); ++i)
      if (in_optimizer(program_.nodes[i])) key_[i] = earliest(i);
    std::vector<uint32_t> order(program_.nodes.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key_[a] < key_[b]; });
    Rewriter rewriter(program_);
    for (uint32_t i : order) rewriter.copy(program_.nodes[i]);
    return rewriter.finish();
  }

 private:
  bool in_optimizer(const Node& node) const { return is_in(Phase::optimizer, program_, node); }

  // Returns the earliest position: after the last node it depends on, which is an operand or a reader of the tensor it
  // replaces. Never before the backward pass, nor before plugin code in it: an exception in a plugin must leave all
  // tensors unchanged.
  uint32_t earliest(uint32_t node) const {
    uint32_t key =
        std::max(std::min<uint32_t>(node, static_cast<uint32_t>(first_later_)), std::min(node, last_own_code_));
    for (ValueId v : program_.nodes[node].inputs) key = std::max(key, key_[program_.values[v].node]);
    const auto replaced = replaced_.find(node);
    if (replaced == replaced_.end()) return key;
    for (ValueId leaf : replaced->second)
      for (uint32_t reader : roots_.readers(leaf)) {
        if (reader > node) return node;
        if (reader != node) key = std::max(key, key_[reader]);
      }
    return key;
  }

  const Program& program_;
  std::vector<uint32_t> key_;  // by node: its new position; nodes with equal keys keep their order
  const Uses roots_;
  std::map<uint32_t, std::vector<ValueId>> replaced_;  // by node: leaves updated by its results
  size_t first_later_ = program_.nodes.size();
  uint32_t last_own_code_ = 0;
};

}  // namespace

Program advance_updates(const Program& program) { return Scheduler(program).run(); }

}  // namespace harmonics::engine
