#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "engine/passes/match.hpp"
#include "engine/passes/uses.hpp"

namespace harmonics::engine {

namespace {

// sum + dot(a, b), fused into one node at the position of the product.
struct Accumulation {
  uint32_t add, product;  // nodes
  ValueId sum;
  std::optional<ValueId> keep;  // flag: if unset, the sum counts as zero
};

class Accumulations {
 public:
  explicit Accumulations(const Program& program) : program_(program), uses_(program), roots_(program, Uses::Of::roots) {
    for (const NamedValue& v : program.updates) updates_.emplace(v.value, v.name);
  }

  std::optional<Accumulation> at(uint32_t index) const {
    const Node& add = program_.nodes[index];
    if (add.op != Op::add || program_.type(add.outputs[0]).dtype != DType::F32) return std::nullopt;
    // Prefer the operand computed last, when the other one is already in memory.
    const uint32_t first = program_.values[add.inputs[0]].node, second = program_.values[add.inputs[1]].node;
    const size_t last = first > second ? 0 : 1;
    for (const size_t which : {last, 1 - last}) {
      const ValueId product = add.inputs[which], sum = add.inputs[1 - which];
      const uint32_t maker = program_.values[product].node;
      if (!is_usual_product(program_, program_.nodes[maker]) || !uses_.once(product)) continue;
      if (is_forward(program_, program_.nodes[maker]) != is_forward(program_, add)) continue;
      if (dies(sum, maker, index)) return Accumulation{index, maker, sum, {}};
      if (auto gathered = in_state(index, maker, sum)) return gathered;
    }
    return std::nullopt;
  }

 private:
  // Returns whether the sum is computed before the product and has no later reader except the add, so that the result
  // may reuse its memory.
  bool dies(ValueId sum, uint32_t product, uint32_t add) const {
    const ValueId root = behind_views(program_, sum);
    const Op made_by = program_.producer(root).op;
    if (is_leaf(made_by) || is_constant(made_by) || made_by == Op::broadcast || roots_.is_result(root)) return false;
    const auto readers = roots_.readers(root);
    return program_.values[sum].node < product && std::all_of(readers.begin(), readers.end(), [&](uint32_t r) {
             return r == add || r < product || is_reshape(r);
           });
  }
  // Reshapes are views; their readers are counted instead.
  bool is_reshape(uint32_t node) const { return program_.nodes[node].op == Op::reshape; }

  // Matches a gradient accumulated over micro-batches: state' = (keep ? state : 0) + product.
  std::optional<Accumulation> in_state(uint32_t add, uint32_t product, ValueId sum) const {
    const ValueId result = program_.nodes[add].outputs[0];
    const auto update = updates_.find(result);
    if (update == updates_.end() || !uses_.once(result) || own_code_ >= static_cast<int64_t>(product))
      return std::nullopt;
    Accumulation a{add, product, sum, {}};
    if (ValueId keep, kept, none;
        match::op(Op::select, match::any(keep), match::any(kept), match::any(none))(program_, sum)) {
      if (program_.producer(keep).op == Op::broadcast) keep = program_.producer(keep).inputs[0];
      const bool flag = program_.producer(keep).op == Op::input && program_.type(keep).shape.count() == 1;
      if (!flag || !is_zero(program_, none) || !uses_.once(sum)) return std::nullopt;
      a.keep = keep;
      a.sum = kept;
    }
    const Node& leaf = program_.producer(a.sum);
    const bool own =
        (leaf.op == Op::state || leaf.op == Op::parameter) && leaf.callee == update->second && uses_.once(a.sum);
    return own ? std::optional(a) : std::nullopt;
  }

  const Program& program_;
  const Uses uses_, roots_;
  std::map<ValueId, std::string> updates_;  // by new value: name of the state
  const int64_t own_code_ = last_own_code(program_);
};

class Fuser {
 public:
  Fuser(const Program& program, const AcceptsCall& accepts)
      : program_(program), accepts_(accepts), rewriter_(program) {}

  Program run() {
    const Accumulations found(program_);
    for (uint32_t i = 0; i < program_.nodes.size(); ++i)
      if (const auto a = found.at(i); a && accepted(*a)) at_.emplace(a->product, *a), adds_.insert(i);
    if (at_.empty()) return program_;
    // Copy leaves first, because the flag may be an input declared after the product.
    for (const Node& node : program_.nodes)
      if (is_leaf(node.op)) rewriter_.copy(node);
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
      if (const auto a = at_.find(i); a != at_.end())
        put(a->second);
      else if (!is_leaf(program_.nodes[i].op) && !adds_.count(i))
        rewriter_.copy(program_.nodes[i]);
    }
    return dce(rewriter_.finish());
  }

 private:
  std::vector<ValueId> inputs(const Accumulation& a) const {
    const Node& product = program_.nodes[a.product];
    std::vector<ValueId> list{a.sum, product.inputs[0], product.inputs[1]};
    if (a.keep) list.push_back(*a.keep);
    return list;
  }

  bool accepted(const Accumulation& a) const {
    std::vector<TensorType> types;
    for (ValueId v : inputs(a)) types.push_back(program_.type(v));
    const Node& product = program_.nodes[a.product];
    return accepts_("dot_add", product.attributes, types, program_.scope_of(product).rounding);
  }

  void put(const Accumulation& a) {
    Node node = program_.nodes[a.product];
    node.op = Op::call;
    node.callee = "dot_add";
    node.inputs.clear();
    node.outputs.clear();
    for (ValueId v : inputs(a)) node.inputs.push_back(rewriter_.mapped(v));
    rewriter_.put(std::move(node), program_.nodes[a.add]);
  }

  const Program& program_;
  const AcceptsCall& accepts_;
  Rewriter rewriter_;
  std::map<uint32_t, Accumulation> at_;  // by product
  std::set<uint32_t> adds_;
};

}  // namespace

Program accumulate_products(const Program& program, const AcceptsCall& accepts) {
  return Fuser(program, accepts).run();
}

}  // namespace harmonics::engine
