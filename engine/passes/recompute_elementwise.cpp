#include <algorithm>
#include <unordered_map>

#include "engine/passes/pass.hpp"
#include "engine/passes/uses.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

// Returns whether an operation costs more than a few instructions per element.
bool is_slow(Op op) {
  switch (op) {
    case Op::neg:
    case Op::abs:
    case Op::sign:
    case Op::floor:
    case Op::ceil:
    case Op::round:
    case Op::sqrt:
    case Op::rsqrt:
    case Op::cast:
    case Op::is_nan:
    case Op::is_inf:
    case Op::logical_not:
      return false;
    default:
      return op_row(op).family == Family::unary || op == Op::pow;
  }
}

class ElementRecomputer {
 public:
  ElementRecomputer(const Program& program, uint64_t least_bytes)
      : program_(program),
        uses_(program),
        rewriter_(program),
        cloned_(program.nodes.size(), false),
        costs_(program.nodes.size()) {
    for (uint32_t i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      if (!computes_elements(node) || !is_forward(program, node)) continue;
      costs_[i] = cost_of(node);
      const ValueId v = node.outputs[0];
      cloned_[i] = costs_[i].known && costs_[i].slow <= 1 && costs_[i].operations <= kMostOperations &&
                   program.type(v).bytes() >= least_bytes && only_elements_read(v);
      any_ = any_ || cloned_[i];
    }
  }

  Program run() {
    if (!any_) return program_;
    for (const Node& node : program_.nodes) {
      if (is_forward(program_, node)) {
        rewriter_.copy(node);
        continue;
      }
      Node later = node;
      later.outputs.clear();
      for (ValueId& v : later.inputs) v = late(v, node.scope);
      rewriter_.put(std::move(later), node);
    }
    return dce(rewriter_.finish());
  }

 private:
  static constexpr uint32_t kMostOperations = 8;
  // Cost of recomputing a value from values that the backward pass reads anyway.
  struct Cost {
    bool known = false;
    uint32_t operations = 0, slow = 0;
  };

  bool computes_elements(const Node& node) const {
    return is_elementwise(node.op) && (node.op == Op::cast || node.attributes.empty()) &&
           !converts_stored(program_, node);
  }
  bool is_read_late(ValueId v) const {
    const auto readers = uses_.readers(v);
    return std::any_of(readers.begin(), readers.end(),
                       [&](uint32_t reader) { return !is_forward(program_, program_.nodes[reader]); });
  }
  // Returns whether the backward pass reads the value, and only by elementwise operations.
  bool only_elements_read(ValueId v) const {
    const auto readers = uses_.readers(v);
    return !uses_.is_result(v) && is_read_late(v) && std::all_of(readers.begin(), readers.end(), [&](uint32_t reader) {
      const Node& node = program_.nodes[reader];
      return is_forward(program_, node) || (is_in(Phase::gradient, program_, node) && computes_elements(node));
    });
  }
  Cost cost_of(const Node& node) const {
    Cost cost{true, 1, is_slow(node.op)};
    for (ValueId v : node.inputs) {
      const ValueId source = behind_broadcasts(program_, v);
      const uint32_t maker = program_.values[source].node;
      const Op op = program_.nodes[maker].op;
      if (op == Op::full || op == Op::literal) continue;
      if (is_leaf(op)) return {};  // an optimizer may have replaced it
      if (is_read_late(source) && !cloned_[maker]) continue;
      if (!costs_[maker].known || source != v) return {};
      cost.operations += costs_[maker].operations;
      cost.slow += costs_[maker].slow;
    }
    return cost;
  }

  // Returns the value for a reader in the backward pass. If it is recomputed, this is a clone, which is inserted before
  // its first reader and in the scope of that reader.
  ValueId late(ValueId v, uint32_t scope) {
    const uint32_t maker = program_.values[v].node;
    return cloned_[maker] ? clone(v, scope) : rewriter_.mapped(v);
  }
  ValueId clone(ValueId v, uint32_t scope) {
    const auto known = clones_.find(v);
    if (known != clones_.end()) return known->second;
    Node node = program_.nodes[program_.values[v].node];
    node.outputs.clear();
    node.scope = scope;
    for (ValueId& input : node.inputs) {
      const uint32_t maker = program_.values[input].node;
      const bool again = costs_[maker].known && (cloned_[maker] || !is_read_late(input));
      input = again ? clone(input, scope) : rewriter_.mapped(input);
    }
    const uint32_t made = rewriter_.to().append(std::move(node), {program_.type(v)});
    return clones_[v] = rewriter_.to().nodes[made].outputs[0];
  }

  const Program& program_;
  const Uses uses_;
  Rewriter rewriter_;
  std::vector<bool> cloned_;  // by node
  std::vector<Cost> costs_;   // by node; unknown: cannot be recomputed
  std::unordered_map<ValueId, ValueId> clones_;
  bool any_ = false;
};

}  // namespace

Program recompute_elementwise(const Program& program, uint64_t least_bytes) {
  return ElementRecomputer(program, least_bytes).run();
}

}  // namespace harmonics::engine
