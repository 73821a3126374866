#include "engine/execution/step_order.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace harmonics::engine {

namespace {

// A step is small if its results and workspace need no more: they stay in memory as long as the steps beside it run.
// New values of states lie in the memory of the states.
constexpr uint64_t kSmall = 64u << 10;
// Search for steps to join: how far ahead, and how many.
constexpr uint32_t kAhead = 24, kTogether = 16;
constexpr uint32_t kNone = ~0u;

class Order {
 public:
  Order(const Program& program, const std::vector<PlannedStep>& steps, const std::vector<bool>& alone)
      : program_(program), steps_(steps), alone_(alone), needs_(steps.size()) {
    find_dependencies();
  }

  std::vector<OrderedStep> run(uint32_t rest) {
    group_of_.assign(steps_.size(), kNone);
    add_range(0, rest);
    add_range(rest, static_cast<uint32_t>(steps_.size()));
    return std::move(order_);
  }

 private:
  void find_dependencies() {
    // By value: the step that computes it and the leaf that it is, or of which it is a view.
    std::vector<uint32_t> maker(program_.values.size(), kNone), leaf(program_.values.size(), kNone);
    std::set<std::string> updated;
    for (const NamedValue& update : program_.updates) updated.insert(update.name);
    std::map<std::string, std::vector<uint32_t>> touching;  // by changing state: steps that read or compute it
    uint32_t s = 0;
    for (uint32_t n = 0; n < program_.nodes.size(); ++n) {
      const Node& node = program_.nodes[n];
      const bool is_step = s < steps_.size() && steps_[s].node == n;
      for (const ValueId v : node.outputs) {
        maker[v] = is_step ? s : node.inputs.empty() ? kNone : maker[node.inputs[0]];
        leaf[v] = is_step ? kNone : node.inputs.empty() ? n : leaf[node.inputs[0]];
      }
      if (!is_step) continue;
      for (const ValueId v : node.inputs) {
        if (maker[v] != kNone) needs_[s].push_back(maker[v]);
        if (leaf[v] == kNone) continue;
        if (const std::string& name = program_.nodes[leaf[v]].callee; updated.count(name)) touching[name].push_back(s);
      }
      ++s;
    }
    for (const NamedValue& update : program_.updates) new_states_.insert(update.value);
    for (const NamedValue& update : program_.updates)
      if (maker[update.value] != kNone) touching[update.name].push_back(maker[update.value]);
    for (auto& [name, of_state] : touching) {
      std::sort(of_state.begin(), of_state.end());
      for (size_t i = 1; i < of_state.size(); ++i)
        if (of_state[i] != of_state[i - 1]) needs_[of_state[i]].push_back(of_state[i - 1]);
    }
  }

  bool is_small(uint32_t s) const {
    uint64_t bytes = steps_[s].workspace;
    for (const ValueId v : program_.nodes[steps_[s].node].outputs)
      if (!new_states_.count(v)) bytes += program_.type(v).bytes();
    return bytes <= kSmall;
  }
  bool is_ready(uint32_t s) const {
    return std::all_of(needs_[s].begin(), needs_[s].end(), [&](uint32_t needed) { return group_of_[needed] < group_; });
  }

  void add_range(uint32_t first, uint32_t end) {
    for (; first < end; ++first) {
      if (group_of_[first] != kNone) continue;
      add(first, false);
      uint32_t members = 1;
      for (uint32_t s = first + 1; !alone_[first] && s < std::min(end, first + kAhead) && members < kTogether; ++s) {
        if (group_of_[s] != kNone || alone_[s] || !is_small(s) || !is_ready(s)) continue;
        add(s, true);
        ++members;
      }
      ++group_;
    }
  }
  void add(uint32_t s, bool joins) {
    group_of_[s] = group_;
    order_.push_back({s, joins});
  }

  const Program& program_;
  const std::vector<PlannedStep>& steps_;
  const std::vector<bool>& alone_;
  std::vector<std::vector<uint32_t>> needs_;  // by step: steps that must run before it
  std::set<ValueId> new_states_;
  std::vector<uint32_t> group_of_;
  std::vector<OrderedStep> order_;
  uint32_t group_ = 0;
};

}  // namespace

std::vector<OrderedStep> order_steps(const Program& program, const std::vector<PlannedStep>& steps,
                                     const std::vector<bool>& alone, uint32_t rest) {
  return Order(program, steps, alone).run(rest);
}

}  // namespace harmonics::engine
