#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "engine/passes/pass.hpp"
#include "engine/passes/uses.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

// A product's operands, axes and bias.
struct Product {
  std::vector<ValueId> operands;
  AttributeMap axes;
  std::optional<ValueId> bias;
};
std::optional<Product> product_at(const Program& program, const Node& node) {
  if (node.outputs.size() != 1 || program.type(node.outputs[0]).dtype != DType::F32) return std::nullopt;
  for (ValueId v : node.inputs)
    if (program.type(v).dtype != DType::F32) return std::nullopt;
  Product p{{}, {}, {}};
  if (is_usual_product(program, node)) {
    if (!node.attributes.integers("lhs_batch").empty()) return std::nullopt;
    p.operands = node.inputs;
    p.axes.set("lhs_contract", node.attributes.integers("lhs_contract"))
        .set("rhs_contract", node.attributes.integers("rhs_contract"));
    return p;
  }
  const FunctionalPtr f = called_by(node);
  if (!f || f->traits.transposable != size_t{1}) return std::nullopt;  // not an affine map
  if (!has_defaults(f->signature, AttributeMap(node.attributes).set("transposed", false))) return std::nullopt;
  const bool transposed = node.attributes.flag("transposed");
  const auto rank = static_cast<int64_t>(program.type(node.inputs[0]).shape.rank());
  p.operands = {node.inputs[0], node.inputs[1]};
  p.axes.set("lhs_contract", std::vector<int64_t>{rank - 1})
      .set("rhs_contract", std::vector<int64_t>{transposed ? 0 : 1});
  if (node.inputs.size() == 3) p.bias = node.inputs[2];
  return p;
}

// A product and the elementwise operations that are fused with it.
struct Finish {
  uint32_t product;             // node
  std::vector<uint32_t> steps;  // nodes, in order
  std::vector<ValueId> inputs;  // of the fused call
  AttributeMap attributes;
  std::vector<ValueId> stored;  // results of the fused call, as values of the old program
};

class Finisher {
 public:
  Finisher(const Program& program, const AcceptsCall& accepts)
      : program_(program), accepts_(accepts), uses_(program), rewriter_(program) {}

  Program run() {
    for (uint32_t i = 0; i < program_.nodes.size(); ++i)
      if (auto finish = finish_of(i)) {
        taken_.insert(finish->steps.begin(), finish->steps.end());
        at_.emplace(i, std::move(*finish));
      }
    if (at_.empty()) return program_;
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
      if (const auto found = at_.find(i); found != at_.end())
        put(found->second);
      else if (!taken_.count(i) && !copied_.count(i))
        rewriter_.copy(program_.nodes[i]);
    }
    return rewriter_.finish();
  }

 private:
  static constexpr size_t kMostSteps = 12, kMostInputs = 8, kMostStored = 4;

  // Returns the name of the operation if it can be a step, otherwise "".
  std::string_view name_of(const Node& node) const {
    if (const FunctionalPtr f = called_by(node))
      return f->traits.elementwise && has_defaults(f->signature, node.attributes) ? std::string_view(node.callee) : "";
    return is_elementwise(node.op) && node.op != Op::cast && node.attributes.empty() ? op_name(node.op) : "";
  }

  std::optional<Finish> finish_of(uint32_t index) const {
    const Node& node = program_.nodes[index];
    const auto product = product_at(program_, node);
    if (!product) return std::nullopt;
    Finish f{index, {}, product->operands, {}, {}};
    std::map<ValueId, uint32_t> number;  // register numbers
    number.emplace(node.outputs[0], 0);
    // Registers of further inputs precede those of steps, so they are numbered after all steps are known.
    std::vector<ValueId> further;
    if (product->bias) further.push_back(*product->bias);
    std::set<ValueId> made{node.outputs[0]};
    collect(index, made, further, f.steps);
    if (f.steps.empty()) return std::nullopt;
    f.inputs.insert(f.inputs.end(), further.begin(), further.end());
    uint32_t next = 1, last_read = 0;  // last_read: the register of the last step that reads the unfinished product
    for (ValueId v : further) number.emplace(v, next++);
    std::string text;
    if (product->bias) {
      text = "add(0,1)";
      number[node.outputs[0]] = next++;
      last_read = next - 1;
    }
    for (const uint32_t i : f.steps) {
      const Node& step = program_.nodes[i];
      text += text.empty() ? "" : " ";
      text += name_of(step);
      for (size_t k = 0; k < step.inputs.size(); ++k) {
        const uint32_t r =
            number.at(made.count(step.inputs[k]) ? step.inputs[k] : behind_broadcasts(program_, step.inputs[k]));
        if (r == 0) last_read = next;
        text += (k ? "," : "(") + std::to_string(r);
      }
      text += ")";
      number[step.outputs[0]] = next++;
    }
    return stored(f, made, number, last_read, text, product->axes) ? std::optional(std::move(f)) : std::nullopt;
  }

  // Collects the operations on the product that can be steps, in order, and their further inputs. Later operations on
  // these inputs alone, such as a derivative, are steps too if a step on the product reads them.
  void collect(uint32_t index, std::set<ValueId>& made, std::vector<ValueId>& further,
               std::vector<uint32_t>& steps) const {
    const auto readers = uses_.readers(program_.nodes[index].outputs[0]);
    std::set<uint32_t> open(readers.begin(), readers.end());
    while (!open.empty() && steps.size() < kMostSteps) {
      const uint32_t i = *open.begin();
      open.erase(open.begin());
      if (made.count(program_.nodes[i].outputs[0])) continue;
      Taken more;
      if (!take(index, i, made, more) || steps.size() + more.steps.size() > kMostSteps) continue;
      std::set<ValueId> all(further.begin(), further.end());
      all.insert(more.inputs.begin(), more.inputs.end());
      if (all.size() > kMostInputs) continue;
      for (ValueId v : more.inputs)
        if (std::find(further.begin(), further.end(), v) == further.end()) further.push_back(v);
      for (const uint32_t step : more.steps) {
        steps.push_back(step);
        made.insert(program_.nodes[step].outputs[0]);
        const auto later = uses_.readers(program_.nodes[step].outputs[0]);
        open.insert(later.begin(), later.end());
      }
    }
    std::sort(steps.begin(), steps.end());
  }

  // Steps, and the inputs that they read.
  struct Taken {
    std::vector<uint32_t> steps;
    std::vector<ValueId> inputs;
    bool has(uint32_t step) const { return std::find(steps.begin(), steps.end(), step) != steps.end(); }
  };
  // Adds node `i`, and what it reads that is computed after the product. Returns false if it cannot be a step.
  bool take(uint32_t index, uint32_t i, const std::set<ValueId>& made, Taken& more) const {
    const Node &product = program_.nodes[index], &node = program_.nodes[i];
    if (more.has(i)) return true;
    if (i < index || taken_.count(i) || name_of(node).empty() ||
        program_.type(node.outputs[0]) != program_.type(product.outputs[0]) ||
        program_.scope_of(node).phase != program_.scope_of(product).phase || more.steps.size() == kMostSteps)
      return false;
    for (ValueId v : node.inputs) {
      if (made.count(v)) continue;
      const ValueId from = behind_broadcasts(program_, v);
      const uint32_t maker = program_.values[from].node;
      const bool there = maker < index || is_constant(program_.nodes[maker].op);
      if (there && program_.type(from).dtype != DType::F32) return false;
      if (there)
        more.inputs.push_back(from);
      else if (from != v || !take(index, maker, made, more))
        return false;
    }
    more.steps.push_back(i);
    return true;
  }

  // Determines the registers to store: those with other readers. The first one takes the product's memory, so it must
  // be the product itself, or be computed when the product is no longer read. Returns false if that is impossible or
  // the device does not accept the call.
  bool stored(Finish& f, const std::set<ValueId>& made, const std::map<ValueId, uint32_t>& number, uint32_t last_read,
              const std::string& text, const AttributeMap& axes) const {
    std::vector<std::pair<uint32_t, ValueId>> list;
    for (ValueId v : made) {
      const auto readers = uses_.readers(v);
      if (uses_.is_result(v) || std::any_of(readers.begin(), readers.end(), [&](uint32_t r) {
            return !std::binary_search(f.steps.begin(), f.steps.end(), r);
          }))
        list.emplace_back(number.at(v), v);
    }
    std::sort(list.begin(), list.end());
    const auto first = std::find_if(list.begin(), list.end(), [&](const auto& p) { return p.first >= last_read; });
    if (list.empty() || list.size() > kMostStored || (first == list.end() && list[0].first != 0)) return false;
    if (list[0].first != 0) std::rotate(list.begin(), first, first + 1);
    std::vector<int64_t> registers;
    for (const auto& [r, v] : list) registers.push_back(r), f.stored.push_back(v);
    f.attributes = axes;
    f.attributes.set("steps", text).set("stored", registers);
    std::vector<TensorType> types;
    for (size_t i = 0; i < f.inputs.size(); ++i)
      types.push_back(is_scalar(f, i) ? scalar_of(f.inputs[i]) : program_.type(f.inputs[i]));
    return accepts_("fused_dot", f.attributes, types, program_.scope_of(program_.nodes[f.product]).rounding);
  }

  void put(const Finish& f) {
    Node node{};
    node.op = Op::call;
    node.callee = "fused_dot";
    node.scope = program_.nodes[f.product].scope;
    node.attributes = f.attributes;
    for (size_t i = 0; i < f.inputs.size(); ++i) {
      const ValueId v = f.inputs[i];
      const uint32_t maker = program_.values[v].node;  // later than the product only if constant
      if (is_scalar(f, i)) {
        node.inputs.push_back(scalar(v));
        continue;
      }
      if (maker > f.product && copied_.insert(maker).second) rewriter_.copy(program_.nodes[maker]);
      node.inputs.push_back(rewriter_.mapped(v));
    }
    std::vector<TensorType> types;
    for (ValueId v : f.stored) types.push_back(program_.type(v));
    const uint32_t index = rewriter_.to().append(std::move(node), types);
    const std::vector<ValueId> results = rewriter_.to().nodes[index].outputs;
    for (size_t i = 0; i < f.stored.size(); ++i) rewriter_.map(f.stored[i], results[i]);
  }

  // A further input of equal numbers is passed as a scalar; the product's operands keep their shapes.
  bool is_scalar(const Finish& f, size_t input) const {
    return input >= 2 && program_.producer(f.inputs[input]).op == Op::full;
  }
  TensorType scalar_of(ValueId v) const { return {program_.type(v).dtype, {}}; }
  ValueId scalar(ValueId v) {
    Node number = program_.producer(v);
    number.outputs.clear();
    number.attributes.set("shape", std::vector<int64_t>{});
    const uint32_t index = rewriter_.to().append(std::move(number), {scalar_of(v)});
    return rewriter_.to().nodes[index].outputs[0];
  }

  const Program& program_;
  const AcceptsCall& accepts_;
  const Uses uses_;
  Rewriter rewriter_;
  std::map<uint32_t, Finish> at_;  // by product
  std::set<uint32_t> taken_;       // steps of all products
  std::set<uint32_t> copied_;      // constants moved before a product
};

}  // namespace

bool can_finish(const Program& program, const Node& node, std::string_view operation, const AcceptsCall& accepts) {
  const auto product = product_at(program, node);
  if (!product) return false;
  std::vector<TensorType> types;
  for (ValueId v : product->operands) types.push_back(program.type(v));
  if (product->bias) types.push_back(program.type(*product->bias));
  const std::string steps =
      product->bias ? "add(0,1) " + std::string(operation) + "(2)" : std::string(operation) + "(0)";
  AttributeMap attributes = product->axes;
  attributes.set("steps", steps).set("stored", std::vector<int64_t>{product->bias ? 3 : 1});
  return accepts("fused_dot", attributes, types, program.scope_of(node).rounding);
}

Program finish_products(const Program& program, const AcceptsCall& accepts) {
  return dce(Finisher(program, accepts).run());
}

}  // namespace harmonics::engine
