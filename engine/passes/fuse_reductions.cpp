#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "engine/passes/pass.hpp"
#include "engine/passes/uses.hpp"
#include "engine/program/chain.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

bool is_reduction(Op op) {
  return op == Op::reduce_sum || op == Op::reduce_max || op == Op::reduce_min || op == Op::reduce_prod;
}

class ReductionFuser {
 public:
  ReductionFuser(const Program& program, const HasKernel& accepts)
      : program_(program), accepts_(accepts), rewriter_(program), uses_(program) {
    for (uint32_t i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      if (!is_reduction(node.op)) continue;
      const Node& maker = program.producer(node.inputs[0]);
      // Fuse the first reduction of each chain; others read the stored result.
      if ((has_one_op(maker) || maker.op == Op::fused_elementwise) &&
          is_forward(program, maker) == is_forward(program, node))
        reduced_.emplace(program.values[node.inputs[0]].node, i);
    }
  }

  Program run() {
    if (reduced_.empty()) return program_;
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
      const auto at = reduced_.find(i);
      if (at != reduced_.end() && put(program_.nodes[i], program_.nodes[at->second]))
        done_.insert(at->second);
      else if (!done_.count(i))
        rewriter_.copy(program_.nodes[i]);
    }
    return dce(rewriter_.finish());
  }

 private:
  // Returns whether the node is a single operation that can serve as a chain.
  bool has_one_op(const Node& node) const {
    return is_elementwise(node.op) && (node.op == Op::cast || node.attributes.empty()) &&
           !converts_stored(program_, node);
  }

  Chain chain_at(const Node& node, const std::vector<ValueId>& inputs) const {
    if (node.op == Op::fused_elementwise) return chain_of(node.attributes, inputs.size());
    ChainOp op{node.op, static_cast<uint32_t>(node.inputs.size()), {}, program_.type(node.outputs[0]).dtype};
    for (uint32_t k = 0; k < op.operand_count; ++k)
      op.operands[k] = static_cast<uint32_t>(std::find(inputs.begin(), inputs.end(), node.inputs[k]) - inputs.begin());
    return {{op}, {static_cast<uint32_t>(inputs.size())}, program_.type(node.outputs[0]).shape};
  }

  // Returns the distinct operands.
  static std::vector<ValueId> inputs_of(const Node& node) {
    if (node.op == Op::fused_elementwise) return node.inputs;
    std::vector<ValueId> once;
    for (ValueId v : node.inputs)
      if (std::find(once.begin(), once.end(), v) == once.end()) once.push_back(v);
    return once;
  }

  // Emits the fused node at the chain's position. Its results are those with other readers, then the reduction.
  bool put(const Node& maker, const Node& reduction) {
    const std::vector<ValueId> inputs = inputs_of(maker);
    Chain chain = chain_at(maker, inputs);
    const std::vector<uint32_t> made = chain.outputs;
    chain.outputs.clear();
    std::vector<ValueId> stored;
    uint32_t last = 0;
    for (size_t i = 0; i < made.size(); ++i) {
      const bool is_reduced = maker.outputs[i] == reduction.inputs[0];
      if (is_reduced) last = made[i];
      if (is_reduced && uses_.once(maker.outputs[i])) continue;
      chain.outputs.push_back(made[i]);
      stored.push_back(maker.outputs[i]);
    }
    chain.outputs.push_back(last);

    Node fused{};
    fused.op = Op::call;
    fused.callee = kFusedReduce;
    fused.scope = maker.scope;
    for (ValueId v : inputs) fused.inputs.push_back(rewriter_.mapped(v));
    fused.attributes = chain.attributes();
    fused.attributes.set("reduction", std::string(op_name(reduction.op)))
        .set("axes", reduction.attributes.integers("axes"))
        .set("keep", reduction.attributes.flag("keep"));
    std::vector<TensorType> types;
    for (ValueId v : stored) types.push_back(program_.type(v));
    types.push_back(program_.type(reduction.outputs[0]));
    const std::optional<std::vector<ValueId>> results = rewriter_.append_accepted(std::move(fused), types, accepts_);
    if (!results) return false;
    for (size_t i = 0; i < stored.size(); ++i) rewriter_.map(stored[i], (*results)[i]);
    rewriter_.map(reduction.outputs[0], results->back());
    return true;
  }

  const Program& program_;
  const HasKernel& accepts_;
  Rewriter rewriter_;
  const Uses uses_;
  std::map<uint32_t, uint32_t> reduced_;  // by node: the reduction of its result
  std::set<uint32_t> done_;
};

}  // namespace

Program fuse_reductions(const Program& program, const HasKernel& accepts) {
  return ReductionFuser(program, accepts).run();
}

}  // namespace harmonics::engine
