#include <algorithm>
#include <set>

#include "engine/passes/pass.hpp"
#include "engine/passes/uses.hpp"
#include "engine/program/op.hpp"
#include "engine/tensor/moment_scales.hpp"

namespace harmonics::engine {

namespace {

constexpr int64_t kLeastOutputs = 32;                // shorter rows fill only a few vectors
constexpr uint64_t kMostBytes = uint64_t{64} << 20;  // larger weights keep their layout

TensorType exchanged(const TensorType& t) { return {t.dtype, Shape{t.shape[1], t.shape[0]}}; }

bool is_plain_dot(const Node& node) { return node.op == Op::dot && node.attributes.integers("lhs_batch").empty(); }

class Transposer {
 public:
  Transposer(const Program& program, const IsTransposed& is_transposed)
      : program_(program),
        is_transposed_(is_transposed),
        rewriter_(program),
        uses_(program),
        wanted_(program.values.size(), false),
        turned_(program.values.size(), Rewriter::kNone) {}

  Program run() {
    choose();
    if (std::none_of(wanted_.begin(), wanted_.end(), [](bool w) { return w; })) return program_;
    for (const Node& node : program_.nodes) visit(node);
    Program& to = rewriter_.to();
    for (const NamedValue& v : program_.outputs) to.outputs.push_back({v.name, natural(v.value)});
    for (const NamedValue& v : program_.updates)
      to.updates.push_back({v.name, lies_turned_.count(v.name) ? turned(v.value) : natural(v.value)});
    verify(to);
    return std::move(to);
  }

 private:
  const TensorType& type(ValueId v) const { return program_.type(v); }
  bool is_update(const Node& node) const {
    const FunctionalPtr f = called_by(node);
    return f && f->traits.update == UpdateKind::one;
  }
  // Returns the input that the attribute `transposed` refers to.
  static std::optional<size_t> transposable(const Node& node) {
    const FunctionalPtr f = called_by(node);
    return f ? f->traits.transposable : std::nullopt;
  }

  // ---- values to transpose ----

  void choose() {
    for (const Node& node : program_.nodes)
      if (node.op == Op::parameter && can_turn(node.outputs[0])) ask(node, prefers_turned(node.outputs[0]));
    for (const Node& node : program_.nodes)
      if (is_update(node) && wanted_[node.inputs[0]]) want_operands(node);
    // Register the natural layout of other states, such as accumulated gradients, so that later programs use it too.
    for (const Node& node : program_.nodes)
      if (node.op == Op::state && can_turn(node.outputs[0]) && !lies_turned_.count(node.callee)) ask(node, false);
  }

  // Stored types cannot be transposed, because their blocks run along rows.
  bool can_turn(ValueId v) const { return type(v).shape.rank() == 2 && !is_stored(type(v).dtype); }

  // Returns whether an affine map reads the matrix, and otherwise only affine maps, updates and products do. Excludes
  // batch-invariant maps, which read rows of weights, and types other than f32, whose kernels use the natural layout.
  bool prefers_turned(ValueId v) const {
    const bool suits =
        type(v).dtype == DType::F32 && type(v).shape[0] >= kLeastOutputs && type(v).bytes() <= kMostBytes;
    bool any = false;
    for (uint32_t reader : uses_.readers(v)) {
      const Node& node = program_.nodes[reader];
      const bool maps = !node.attributes.flag("batch_invariant");
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != v) continue;
        if (suits && maps && transposable(node) == i)
          any = true;
        else if (!(is_update(node) && i == 0) && !is_plain_dot(node))
          return false;
      }
    }
    return any;
  }

  bool ask(const Node& leaf, bool preferred) {
    const bool turned = is_transposed_(leaf.callee, type(leaf.outputs[0]), preferred);
    if (turned) wanted_[leaf.outputs[0]] = true, lies_turned_.insert(leaf.callee);
    return turned;
  }

  // Returns whether an operand of an update has the layout of the weight: gradient, moments, and scales of quantised
  // moments.
  bool lies_like_weight(const Node& update, ValueId v) const {
    const Shape& weight = type(update.inputs[0]).shape;
    return type(v).shape == weight || (weight.rank() == 2 && type(v) == TensorType{DType::U8, moment_scales(weight)});
  }

  void want_operands(const Node& node) {
    for (ValueId v : node.inputs)
      if (lies_like_weight(node, v)) want(v);
    for (ValueId v : node.outputs) wanted_[v] = true;
  }

  void want(ValueId v) {
    if (wanted_[v]) return;
    const Node& maker = program_.producer(v);
    if (maker.op == Op::state) {
      ask(maker, true);
    } else if (is_elementwise(maker.op)) {
      wanted_[v] = true;
      for (ValueId in : maker.inputs)
        if (type(in).shape == type(v).shape) want(in);
    } else if (maker.op == Op::dot && turns_by_itself(maker)) {
      wanted_[v] = true;
    }
  }

  // Returns whether all elements are equal.
  bool is_one_number(const Node& node) const {
    return node.op == Op::full || (node.op == Op::broadcast && type(node.inputs[0]).shape.count() == 1);
  }

  // Returns whether swapping the operands transposes the result.
  bool turns_by_itself(const Node& node) const {
    return is_plain_dot(node) &&
           type(node.inputs[0]).shape.rank() == node.attributes.integers("lhs_contract").size() + 1 &&
           type(node.inputs[1]).shape.rank() == node.attributes.integers("rhs_contract").size() + 1;
  }

  // ---- rewriting ----

  ValueId append(Node node, const TensorType& type) {
    node.outputs.clear();
    const uint32_t index = rewriter_.to().append(std::move(node), {type});
    return rewriter_.to().nodes[index].outputs[0];
  }
  ValueId exchange(ValueId v, const TensorType& type, uint32_t scope) {
    Node node{};
    node.op = Op::transpose;
    node.attributes.set("permutation", std::vector<int64_t>{1, 0});
    node.inputs = {v};
    node.scope = scope;
    return append(std::move(node), type);
  }
  ValueId natural(ValueId v) {
    if (rewriter_.mapped(v) == Rewriter::kNone)
      rewriter_.map(v, exchange(turned_[v], type(v), program_.producer(v).scope));
    return rewriter_.mapped(v);
  }
  ValueId turned(ValueId v) {
    if (turned_[v] != Rewriter::kNone) return turned_[v];
    const Node& maker = program_.producer(v);
    if (!is_one_number(maker)) return turned_[v] = exchange(rewriter_.mapped(v), exchanged(type(v)), maker.scope);
    Node n = maker;
    for (ValueId& in : n.inputs) in = natural(in);
    n.attributes.set("shape", exchanged(type(v)).shape.vector());
    return turned_[v] = append(std::move(n), exchanged(type(v)));
  }
  bool is_turned(ValueId v) const { return turned_[v] != Rewriter::kNone; }

  void visit(const Node& node) {
    if (node.outputs.empty()) return copy(node);
    const ValueId out = node.outputs[0];
    if (is_leaf(node.op) && wanted_[out]) {
      Node leaf = node;
      leaf.attributes.set("transposed", true);
      turned_[out] = append(std::move(leaf), exchanged(type(out)));
    } else if (is_update(node) && wanted_[out]) {
      put_update(node);
    } else if (is_elementwise(node.op) && type(out).shape.rank() == 2 && (wanted_[out] || reads_only_turned(node))) {
      Node n = node;
      for (ValueId& v : n.inputs) v = type(v).shape == type(out).shape ? turned(v) : natural(v);
      turned_[out] = append(std::move(n), exchanged(type(out)));
    } else if (wanted_[out] && node.op == Op::dot) {
      put_exchanged_dot(node);
    } else if (is_plain_dot(node)) {
      put_dot(node);
    } else if (const auto matrix = transposable(node); matrix && is_turned(node.inputs[*matrix])) {
      Node n = node;
      for (size_t i = 0; i < n.inputs.size(); ++i)
        n.inputs[i] = i == *matrix ? turned_[n.inputs[i]] : natural(n.inputs[i]);
      n.attributes.set("transposed", !n.attributes.flag("transposed"));
      rewriter_.put(std::move(n), node);
    } else if (takes_any_order(node)) {
      Node n = node;
      for (ValueId& v : n.inputs) v = is_turned(v) ? turned_[v] : natural(v);
      rewriter_.put(std::move(n), node);
    } else {
      copy(node);
    }
  }

  // Returns whether all operands exist only transposed. The result is then transposed too, and transposed back only on
  // demand.
  bool reads_only_turned(const Node& node) const {
    bool any = false;
    for (ValueId v : node.inputs) {
      if (type(v).shape != type(node.outputs[0]).shape || is_one_number(program_.producer(v))) continue;
      if (!is_turned(v) || rewriter_.mapped(v) != Rewriter::kNone) return false;
      any = true;
    }
    return any;
  }
  bool takes_any_order(const Node& node) const {
    if (const FunctionalPtr f = called_by(node)) return f->traits.order_free;
    return node.op == Op::reduce_sum && node.attributes.integers("axes").size() == 2 &&
           type(node.inputs[0]).shape.rank() == 2 && !node.attributes.flag("keep");
  }

  void copy(const Node& node) {
    for (ValueId v : node.inputs) natural(v);
    rewriter_.copy(node);
  }

  void put_update(const Node& node) {
    Node n = node;
    for (ValueId& v : n.inputs) v = lies_like_weight(node, v) ? turned(v) : natural(v);
    std::vector<TensorType> types;
    for (ValueId v : node.outputs) types.push_back(exchanged(type(v)));
    n.outputs.clear();
    const uint32_t index = rewriter_.to().append(std::move(n), types);
    for (size_t i = 0; i < node.outputs.size(); ++i) turned_[node.outputs[i]] = rewriter_.to().nodes[index].outputs[i];
  }

  // Returns the operand in its current layout, and renumbers the contracted axes if it is transposed.
  ValueId operand(ValueId v, std::vector<int64_t>& contract) {
    if (!is_turned(v) || contract.empty()) return natural(v);
    for (int64_t& axis : contract) axis = 1 - axis;
    return turned_[v];
  }

  void put_dot(const Node& node) {
    std::vector<int64_t> lhs = node.attributes.integers("lhs_contract"), rhs = node.attributes.integers("rhs_contract");
    Node n = node;
    n.inputs = {operand(node.inputs[0], lhs), operand(node.inputs[1], rhs)};
    n.attributes.set("lhs_contract", lhs).set("rhs_contract", rhs);
    rewriter_.put(std::move(n), node);
  }

  void put_exchanged_dot(const Node& node) {
    std::vector<int64_t> lhs = node.attributes.integers("lhs_contract"), rhs = node.attributes.integers("rhs_contract");
    Node n = node;
    const ValueId a = operand(node.inputs[0], lhs), b = operand(node.inputs[1], rhs);
    n.inputs = {b, a};
    n.attributes.set("lhs_contract", rhs).set("rhs_contract", lhs);
    turned_[node.outputs[0]] = append(std::move(n), exchanged(type(node.outputs[0])));
  }

  const Program& program_;
  const IsTransposed& is_transposed_;
  Rewriter rewriter_;
  const Uses uses_;
  std::vector<bool> wanted_;                        // by value: to be computed transposed
  std::vector<ValueId> turned_;                     // by value: its transposed form in the new program
  std::set<std::string, std::less<>> lies_turned_;  // names of transposed leaves
};

}  // namespace

Program transpose_weights(const Program& program, const IsTransposed& is_transposed) {
  return Transposer(program, is_transposed).run();
}

}  // namespace harmonics::engine
