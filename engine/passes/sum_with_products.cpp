#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "engine/passes/pass.hpp"
#include "engine/passes/uses.hpp"

namespace harmonics::engine {

namespace {

// dot(a, b), followed by a sum of one operand over the contracted axes.
struct Pair {
  uint32_t product, sum;  // nodes
  int64_t which;          // index of the operand
};

std::vector<int64_t> sorted(std::vector<int64_t> axes) {
  std::sort(axes.begin(), axes.end());
  return axes;
}

class Pairs {
 public:
  explicit Pairs(const Program& program) : program_(program), uses_(program) {}

  std::optional<Pair> at(uint32_t index) const {
    const Node& product = program_.nodes[index];
    if (!is_usual_product(program_, product) || !product.attributes.integers("lhs_batch").empty() ||
        program_.type(product.outputs[0]).dtype != DType::F32)
      return std::nullopt;
    for (const int64_t which : {0, 1}) {
      const std::vector<int64_t> axes =
          sorted(product.attributes.integers(which == 0 ? "lhs_contract" : "rhs_contract"));
      for (uint32_t i : uses_.readers(product.inputs[static_cast<size_t>(which)]))
        if (i > index && is_sum(program_.nodes[i], axes, product)) return Pair{index, i, which};
    }
    return std::nullopt;
  }

 private:
  bool is_sum(const Node& node, const std::vector<int64_t>& axes, const Node& product) const {
    return node.op == Op::reduce_sum && !node.attributes.flag("keep") &&
           sorted(node.attributes.integers("axes")) == axes &&
           is_forward(program_, node) == is_forward(program_, product);
  }

  const Program& program_;
  const Uses uses_;
};

class SumJoiner {
 public:
  SumJoiner(const Program& program, const AcceptsCall& accepts)
      : program_(program), accepts_(accepts), rewriter_(program) {}

  Program run() {
    const Pairs pairs(program_);
    for (uint32_t i = 0; i < program_.nodes.size(); ++i)
      if (const auto pair = pairs.at(i); pair && !sums_.count(pair->sum) && accepted(*pair)) {
        at_.emplace(i, *pair);
        sums_.insert(pair->sum);
      }
    if (at_.empty()) return program_;
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
      if (const auto pair = at_.find(i); pair != at_.end())
        put(pair->second);
      else if (!sums_.count(i))
        rewriter_.copy(program_.nodes[i]);
    }
    return rewriter_.finish();
  }

 private:
  AttributeMap attributes(const Pair& p) const {
    const AttributeMap& axes = program_.nodes[p.product].attributes;
    return AttributeMap()
        .set("lhs_contract", axes.integers("lhs_contract"))
        .set("rhs_contract", axes.integers("rhs_contract"))
        .set("sum", p.which);
  }
  bool accepted(const Pair& p) const {
    const Node& product = program_.nodes[p.product];
    return accepts_("dot_sum", attributes(p), input_types(program_, product), program_.scope_of(product).rounding);
  }

  void put(const Pair& p) {
    const Node &product = program_.nodes[p.product], &sum = program_.nodes[p.sum];
    Node node = rewriter_.prepared(product);
    node.op = Op::call;
    node.callee = "dot_sum";
    node.attributes = attributes(p);
    const uint32_t index =
        rewriter_.to().append(std::move(node), {program_.type(product.outputs[0]), program_.type(sum.outputs[0])});
    const std::vector<ValueId> made = rewriter_.to().nodes[index].outputs;
    rewriter_.map(product.outputs[0], made[0]);
    rewriter_.map(sum.outputs[0], made[1]);
  }

  const Program& program_;
  const AcceptsCall& accepts_;
  Rewriter rewriter_;
  std::map<uint32_t, Pair> at_;  // by product
  std::set<uint32_t> sums_;
};

}  // namespace

Program sum_with_products(const Program& program, const AcceptsCall& accepts) {
  return SumJoiner(program, accepts).run();
}

}  // namespace harmonics::engine
