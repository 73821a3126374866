#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "engine/passes/match.hpp"
#include "engine/passes/uses.hpp"

namespace harmonics::engine {

namespace {

// w' = sgd(w, dot(a, b), lr), or the step of another optimizer with moments. For a single sample, also the other reader
// of w in the backward pass.
struct Update {
  uint32_t update, product;
  ValueId w, a, b;
  std::vector<ValueId> rest;         // moments, learning rate, step number
  std::optional<uint32_t> gradient;  // dot(b, w): the gradient of a
  std::optional<uint32_t> select;    // select(a <= 0, 0, gradient)
};

class Updates {
 public:
  explicit Updates(const Program& program) : program_(program), uses_(program), own_code_(last_own_code(program)) {}

  std::optional<Update> at(uint32_t index) const {
    const Node& node = program_.nodes[index];
    if (!is_update(node) || node.inputs.size() < 3 || program_.type(node.inputs[0]).dtype != DType::F32 ||
        program_.type(node.inputs[0]).shape.rank() != 2)
      return std::nullopt;
    const uint32_t maker = program_.values[node.inputs[1]].node;
    const Node& product = program_.nodes[maker];
    if (!is_usual_product(program_, product) || !uses_.once(product.outputs[0]) || !sums_outer_products(product))
      return std::nullopt;
    Update u{index, maker, node.inputs[0], product.inputs[0], product.inputs[1], {}, {}, {}};
    u.rest.assign(node.inputs.begin() + 2, node.inputs.end());
    if (program_.type(u.a).shape.count() == program_.type(u.w).shape[0]) find_gradient(u);
    return u;
  }

 private:
  static bool is_update(const Node& node) {
    const FunctionalPtr f = called_by(node);
    return f && f->traits.update == UpdateKind::one;
  }

  // Returns whether the node is dot(a, b), contracted over all axes except the last.
  bool sums_outer_products(const Node& node) const {
    const Shape &a = program_.type(node.inputs[0]).shape, &b = program_.type(node.inputs[1]).shape;
    std::vector<int64_t> leading(a.rank() - 1);
    std::iota(leading.begin(), leading.end(), 0);
    return a.rank() == b.rank() && a.rank() >= 2 && node.attributes.integers("lhs_batch").empty() &&
           node.attributes.integers("lhs_contract") == leading && node.attributes.integers("rhs_contract") == leading;
  }

  // Finds the gradient to join with the update. All other readers of w must precede the gradient.
  void find_gradient(Update& u) const {
    for (uint32_t i : uses_.readers(u.w)) {
      if (i == u.update) continue;
      if (u.gradient) return u.gradient.reset();
      if (is_gradient(program_.nodes[i], u)) u.gradient = i;
    }
    if (!u.gradient) return;
    if (program_.values[u.a].node > *u.gradient) return u.gradient.reset();
    for (ValueId v : u.rest)
      if (!is_leaf(program_.producer(v).op) && program_.values[v].node > *u.gradient) return u.gradient.reset();
    for (size_t i = 0; i < program_.nodes[u.update].outputs.size(); ++i)
      if (i > 0 && uses_.readers(u.rest[i - 1]).size() != 1) return u.gradient.reset();  // a moment has another reader
    if (own_code_ >= static_cast<int64_t>(*u.gradient)) return u.gradient.reset();
    const ValueId gradient = program_.nodes[*u.gradient].outputs[0];
    if (!uses_.once(gradient)) return;
    for (uint32_t i : uses_.readers(gradient))
      if (is_select(program_.nodes[i], u.a, gradient)) u.select = i;
  }

  bool is_gradient(const Node& node, const Update& u) const {
    const int64_t last = static_cast<int64_t>(program_.type(u.b).shape.rank()) - 1;
    return is_usual_product(program_, node) && node.inputs[0] == u.b && node.inputs[1] == u.w &&
           node.attributes.integers("lhs_batch").empty() &&
           node.attributes.integers("lhs_contract") == std::vector<int64_t>{last} &&
           node.attributes.integers("rhs_contract") == std::vector<int64_t>{1};
  }

  // Returns whether the node is select(a <= 0, 0, gradient).
  bool is_select(const Node& node, ValueId a, ValueId gradient) const {
    using namespace match;
    return node.op == Op::select &&
           operands(program_, node, op(Op::less_equal, same(a), zero()), zero(), same(gradient));
  }

  const Program& program_;
  const Uses uses_;
  const int64_t own_code_;
};

class UpdateFuser {
 public:
  UpdateFuser(const Program& program, const AcceptsCall& accepts)
      : program_(program), accepts_(accepts), rewriter_(program) {}

  Program run() {
    const Updates updates(program_);
    for (uint32_t i = 0; i < program_.nodes.size(); ++i)
      if (const auto u = updates.at(i)) settle(*u);
    if (at_.empty()) return program_;
    // Copy leaves first, because a joined step may precede the optimizer's inputs.
    for (const Node& node : program_.nodes)
      if (is_leaf(node.op)) rewriter_.copy(node);
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
      if (const auto u = at_.find(i); u != at_.end())
        put(u->second);
      else if (!is_leaf(program_.nodes[i].op) && !replaced_.count(i))
        rewriter_.copy(program_.nodes[i]);
    }
    return dce(rewriter_.finish());
  }

 private:
  // Returns the specialised call for a step with default attributes, which skips rows of zeros, or "".
  std::string plain(const Update& u) const {
    const Node& node = program_.nodes[u.update];
    const FunctionalPtr f = called_by(node);
    return node.inputs.size() == 3 && has_defaults(f->signature, node.attributes) ? f->traits.factored : "";
  }
  bool is_plain(const Update& u) const { return !plain(u).empty(); }
  std::string callee(const Update& u) const { return is_plain(u) ? plain(u) : "update_outer"; }
  AttributeMap attributes(const Update& u) const {
    AttributeMap a;
    if (!is_plain(u)) a = program_.nodes[u.update].attributes, a.set("update", program_.nodes[u.update].callee);
    if (u.gradient) a.set("input_gradient", std::string(u.select ? "active" : "all"));
    return a;
  }
  std::vector<ValueId> inputs(const Update& u) const {
    std::vector<ValueId> all{u.w, u.a, u.b};
    all.insert(all.end(), u.rest.begin(), u.rest.end());
    return all;
  }
  Rounding rounding(const Update& u) const { return program_.scope_of(program_.nodes[u.product]).rounding; }
  bool accepted(const Update& u) const {
    std::vector<TensorType> types;
    for (ValueId v : inputs(u)) types.push_back(program_.type(v));
    return accepts_(callee(u), attributes(u), types, rounding(u));
  }

  // Chooses the position of the joined step and the nodes it replaces.
  void settle(Update u) {
    if (u.gradient && !accepted(u)) u.gradient.reset(), u.select.reset();
    if (!accepted(u)) return;
    at_.emplace(u.gradient.value_or(u.update), u);
    if (!u.gradient) return;
    replaced_.insert(u.update);
    if (u.select) replaced_.insert(*u.select);
  }

  void put(const Update& u) {
    Node node{};
    node.op = Op::call;
    node.callee = callee(u);
    node.attributes = attributes(u);
    NodeScope scope = program_.scope_of(program_.nodes[u.gradient.value_or(u.update)]);
    scope.rounding = rounding(u);
    node.scope = rewriter_.to().scope_index(scope);
    for (ValueId v : inputs(u)) node.inputs.push_back(rewriter_.mapped(v));
    std::vector<TensorType> types;
    for (ValueId v : program_.nodes[u.update].outputs) types.push_back(program_.type(v));
    if (u.gradient) types.push_back(program_.type(u.a));
    const uint32_t index = rewriter_.to().append(std::move(node), types);
    const std::vector<ValueId> made = rewriter_.to().nodes[index].outputs;
    for (size_t i = 0; i < program_.nodes[u.update].outputs.size(); ++i)
      rewriter_.map(program_.nodes[u.update].outputs[i], made[i]);
    if (u.gradient) rewriter_.map(program_.nodes[u.select.value_or(*u.gradient)].outputs[0], made.back());
  }

  const Program& program_;
  const AcceptsCall& accepts_;
  Rewriter rewriter_;
  std::map<uint32_t, Update> at_;
  std::set<uint32_t> replaced_;
};

}  // namespace

Program fuse_updates(const Program& program, const AcceptsCall& accepts) { return UpdateFuser(program, accepts).run(); }

}  // namespace harmonics::engine
