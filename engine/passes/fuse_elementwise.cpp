#include <algorithm>
#include <bit>
#include <map>

#include "engine/passes/element_groups.hpp"
#include "engine/program/chain.hpp"

namespace harmonics::engine {

namespace {

class ElementwiseFuser {
 public:
  ElementwiseFuser(const Program& program, const HasKernel& accepts)
      : program_(program),
        accepts_(accepts),
        groups_(program, accepts),
        rewriter_(program),
        done_(program.nodes.size(), false) {}

  Program run() {
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
      const int32_t g = groups_.of(i);
      if (g != ElementGroups::kNone) {
        if (i == groups_.group(g).members.back()) emit_group(g);
      } else if (program_.nodes[i].op != Op::broadcast) {  // broadcasts are emitted on demand
        emit_node(i);
      }
    }
    for (const NamedValue& v : program_.outputs) emit(v.value);
    for (const NamedValue& v : program_.updates) emit(v.value);
    return dce(rewriter_.finish());
  }

 private:
  void emit(ValueId v) {
    const uint32_t maker = program_.values[v].node;
    if (done_[maker]) return;
    if (groups_.of(maker) != ElementGroups::kNone)
      emit_group(groups_.of(maker));
    else
      emit_node(maker);
  }

  void emit_node(uint32_t index) {
    if (done_[index]) return;
    done_[index] = true;
    for (ValueId v : program_.nodes[index].inputs) emit(v);
    rewriter_.copy(program_.nodes[index]);
  }

  // Emits the group's inputs, then the group.
  void emit_group(int32_t g) {
    const ElementGroup& group = groups_.group(g);
    if (done_[group.members[0]]) return;
    if (is_worth_it(group)) {
      for (ValueId v : group.inputs) emit(v);
      if (put_chain(group)) {
        for (uint32_t m : group.members) done_[m] = true;
        return;
      }
    }
    for (uint32_t m : group.members) emit_node(m);
  }

  // Returns whether fusing pays off: for a single operation only if it reads a constant or a broadcast's source.
  bool is_worth_it(const ElementGroup& group) const {
    if (group.members.size() > 1) return true;
    const Node& node = program_.nodes[group.members[0]];
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
      return program_.producer(v).op == Op::broadcast ||
             (program_.producer(v).op == Op::full && program_.type(v).shape.rank() > 0);
    });
  }

  bool put_chain(const ElementGroup& group) {
    Node fused{};
    fused.op = Op::fused_elementwise;
    fused.scope = program_.nodes[group.members.back()].scope;
    std::map<ValueId, uint32_t> registers;  // keyed by values of the old program
    for (ValueId v : group.inputs) {
      const ValueId now = scalar_or(v);
      const auto at = std::find(fused.inputs.begin(), fused.inputs.end(), now);
      registers[v] = static_cast<uint32_t>(at - fused.inputs.begin());
      if (at == fused.inputs.end()) fused.inputs.push_back(now);
    }
    const auto chain = chain_of_group(group, registers, fused.inputs.size());
    fused.attributes = chain.attributes();
    std::vector<TensorType> types;
    for (ValueId v : group.outputs) types.push_back(program_.type(v));
    const auto results = rewriter_.append_accepted(std::move(fused), types, accepts_);
    if (!results) return false;
    for (size_t i = 0; i < group.outputs.size(); ++i) rewriter_.map(group.outputs[i], (*results)[i]);
    return true;
  }

  Chain chain_of_group(const ElementGroup& group, std::map<ValueId, uint32_t>& registers, size_t inputs) const {
    Chain chain;
    chain.shape = program_.type(program_.nodes[group.members[0]].outputs[0]).shape;
    for (uint32_t m : group.members) {
      const Node& node = program_.nodes[m];
      ChainOp op{node.op, static_cast<uint32_t>(node.inputs.size()), {}, program_.type(node.outputs[0]).dtype};
      for (uint32_t k = 0; k < op.operand_count; ++k) {
        const auto own = registers.find(node.inputs[k]);
        op.operands[k] =
            own != registers.end() ? own->second : registers.at(behind_broadcasts(program_, node.inputs[k]));
      }
      registers[node.outputs[0]] = static_cast<uint32_t>(inputs + chain.ops.size());
      chain.ops.push_back(op);
    }
    for (ValueId v : group.outputs) chain.outputs.push_back(registers.at(v));
    return chain;
  }

  // Returns the mapped value; replaces a `full` tensor by a scalar.
  ValueId scalar_or(ValueId v) {
    const Node& maker = program_.producer(v);
    if (maker.op != Op::full) return rewriter_.mapped(v);
    const TensorType type{program_.type(v).dtype, {}};
    const auto key = std::make_pair(type.dtype, std::bit_cast<uint64_t>(maker.attributes.number("value")));
    const auto known = scalars_.find(key);
    if (known != scalars_.end()) return known->second;
    Node scalar = maker;
    scalar.outputs.clear();
    scalar.attributes.set("shape", std::vector<int64_t>{});
    const uint32_t index = rewriter_.to().append(std::move(scalar), {type});
    return scalars_[key] = rewriter_.to().nodes[index].outputs[0];
  }

  const Program& program_;
  const HasKernel& accepts_;
  ElementGroups groups_;
  Rewriter rewriter_;
  std::vector<bool> done_;
  std::map<std::pair<DType, uint64_t>, ValueId> scalars_;
};

}  // namespace

Program fuse_elementwise(const Program& program, const HasKernel& accepts) {
  return ElementwiseFuser(program, accepts).run();
}

}  // namespace harmonics::engine
