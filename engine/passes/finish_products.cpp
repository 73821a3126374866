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

  // The product's operands, axes and bias.
  struct Product {
    std::vector<ValueId> operands;
    AttributeMap axes;
    std::optional<ValueId> bias;
  };
  std::optional<Product> product_at(const Node& node) const {
    if (node.outputs.size() != 1 || program_.type(node.outputs[0]).dtype != DType::F32) return std::nullopt;
    for (ValueId v : node.inputs)
      if (program_.type(v).dtype != DType::F32) return std::nullopt;
    Product p{{}, {}, {}};
    if (is_usual_product(program_, node)) {
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
    const auto rank = static_cast<int64_t>(program_.type(node.inputs[0]).shape.rank());
    p.operands = {node.inputs[0], node.inputs[1]};
    p.axes.set("lhs_contract", std::vector<int64_t>{rank - 1})
        .set("rhs_contract", std::vector<int64_t>{transposed ? 0 : 1});
    if (node.inputs.size() == 3) p.bias = node.inputs[2];
    return p;
  }

  // Returns the name of the operation if it can be a step, otherwise "".
  std::string_view name_of(const Node& node) const {
    if (const FunctionalPtr f = called_by(node))
      return f->traits.elementwise && has_defaults(f->signature, node.attributes) ? std::string_view(node.callee) : "";
    return is_elementwise(node.op) && node.op != Op::cast && node.attributes.empty() ? op_name(node.op) : "";
  }

  std::optional<Finish> finish_of(uint32_t index) const {
    const Node& node = program_.nodes[index];
    const auto product = product_at(node);
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

  // Collects the operations on the product that can be steps, in order, and their further inputs.
  void collect(uint32_t index, std::set<ValueId>& made, std::vector<ValueId>& further,
               std::vector<uint32_t>& steps) const {
    const Node& product = program_.nodes[index];
    const TensorType& type = program_.type(product.outputs[0]);
    std::set<uint32_t> open(uses_.readers(product.outputs[0]).begin(), uses_.readers(product.outputs[0]).end());
    while (!open.empty() && steps.size() < kMostSteps) {
      const uint32_t i = *open.begin();
      open.erase(open.begin());
      const Node& node = program_.nodes[i];
      if (taken_.count(i) || name_of(node).empty() || program_.type(node.outputs[0]) != type ||
          program_.scope_of(node).phase != program_.scope_of(product).phase)
        continue;
      std::vector<ValueId> more;
      const bool early = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
        if (made.count(v)) return true;
        const ValueId from = behind_broadcasts(program_, v);
        const bool there = program_.values[from].node < index || is_constant(program_.producer(from).op);
        if (!there || program_.type(from).dtype != DType::F32) return false;
        if (std::find(further.begin(), further.end(), from) == further.end()) more.push_back(from);
        return true;
      });
      if (!early || further.size() + more.size() > kMostInputs) continue;
      for (ValueId v : more)
        if (std::find(further.begin(), further.end(), v) == further.end()) further.push_back(v);
      steps.push_back(i);
      made.insert(node.outputs[0]);
      open.insert(uses_.readers(node.outputs[0]).begin(), uses_.readers(node.outputs[0]).end());
    }
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
    for (ValueId v : f.inputs) types.push_back(program_.type(v));
    return accepts_("fused_dot", f.attributes, types, program_.scope_of(program_.nodes[f.product]).rounding);
  }

  void put(const Finish& f) {
    Node node{};
    node.op = Op::call;
    node.callee = "fused_dot";
    node.scope = program_.nodes[f.product].scope;
    node.attributes = f.attributes;
    for (ValueId v : f.inputs) {
      const uint32_t maker = program_.values[v].node;  // later than the product only if constant
      if (maker > f.product && copied_.insert(maker).second) rewriter_.copy(program_.nodes[maker]);
      node.inputs.push_back(rewriter_.mapped(v));
    }
    std::vector<TensorType> types;
    for (ValueId v : f.stored) types.push_back(program_.type(v));
    const uint32_t index = rewriter_.to().append(std::move(node), types);
    const std::vector<ValueId> results = rewriter_.to().nodes[index].outputs;
    for (size_t i = 0; i < f.stored.size(); ++i) rewriter_.map(f.stored[i], results[i]);
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

Program finish_products(const Program& program, const AcceptsCall& accepts) {
  return dce(Finisher(program, accepts).run());
}

}  // namespace harmonics::engine
