#include "engine/program/gradient.hpp"

#include <algorithm>

#include <harmonics/ops.hpp>
#include <harmonics/quantity.hpp>

#include "engine/program/expand_calls.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/host_function.hpp"
#include "engine/program/op.hpp"
#include "engine/program/scan.hpp"

namespace harmonics::engine {

namespace {

// Returns whether gradients pass through the operation.
bool has_rule(const Node& node) {
  return node.op == Op::call || node.op == Op::host_call || node.op == Op::scan || op_row(node.op).gradient != nullptr;
}

FunctionalPtr need_functional(const Node& node) {
  if (FunctionalPtr f = FunctionalTable::global().find(node.callee)) return f;
  throw Error(ErrorKind::Name, "there is no functional '" + node.callee + "'");
}

class Differentiator {
 public:
  // A seed with an empty gradient must be a scalar; its gradient is 1.
  Differentiator(Tracer& tracer, const std::vector<std::pair<HTensor, HTensor>>& seeds, const std::vector<HTensor>& wrt,
                 Chooser* chooser)
      : tracer_(tracer), chooser_(chooser) {
    for (const auto& [value, of_value] : seeds) seeds_.emplace_back(tracer.id_of(value), of_value);
    for (const HTensor& w : wrt) wrt_.push_back(tracer.id_of(w));
    for (ValueId w : wrt_)
      if (!is_float(program().type(w).dtype))
        throw Error(ErrorKind::Type, "there is no gradient with respect to a value of type " + program().type(w).str());
  }

  std::vector<HTensor> run() {
    find_path();
    adjoints_.resize(program().values.size());
    size_t end = 0;
    for (const auto& [value, given] : seeds_) {
      if (!depends_[value]) continue;
      tracer_.set_scope(gradient_of(program().producer(value)));
      const HTensor of_value = given ? given : full(program().type(value).dtype, {}, 1);
      adjoints_[value] = adjoints_[value] ? add(adjoints_[value], of_value) : of_value;
      end = std::max<size_t>(end, program().values[value].node + 1);
    }
    for (size_t i = end; i-- > 0;) visit(i);
    std::vector<HTensor> results;
    for (ValueId w : wrt_) results.push_back(adjoints_[w] ? adjoints_[w] : zeros_like(tracer_.handle(w)));
    return results;
  }

 private:
  Program& program() { return tracer_.program(); }
  NodeScope gradient_of(const Node& node) {
    const NodeScope& of = program().scope_of(node);
    return {of.phase == Phase::forward ? of.path : of.text(), Phase::gradient, of.origin, of.rounding};
  }

  std::vector<bool> needed_for_value() {
    std::vector<bool> needed(program().values.size(), false);
    for (const auto& [value, of_value] : seeds_) needed[value] = true;
    for (auto node = program().nodes.rbegin(); node != program().nodes.rend(); ++node) {
      bool any = false;
      for (ValueId v : node->outputs) any = any || needed[v];
      if (any)
        for (ValueId v : node->inputs) needed[v] = true;
    }
    return needed;
  }

  // Marks values that depend on wrt, and inlines calls on the path that have no gradient.
  void find_path() {
    const std::vector<bool> needed = needed_for_value();
    depends_.assign(program().values.size(), false);
    for (ValueId w : wrt_) depends_[w] = true;
    expand_calls(program(), [&](Node& node) {
      if (chooser_) choose_in_place(program(), node, *chooser_);
      depends_.resize(program().values.size(), false);
      bool carries = false, used = false;
      for (ValueId v : node.inputs) carries = carries || depends_[v];
      for (ValueId v : node.outputs) used = used || v >= needed.size() || needed[v];
      if (!carries || !has_rule(node)) return false;
      if (used && node.op == Op::call && !need_functional(node)->gradient) {
        if (chooser_) chooser_->opened(program(), node);
        return true;
      }
      if (used && node.op == Op::scan) {
        save_carries(program(), node);
        depends_.resize(program().values.size(), false);
      }
      for (ValueId v : node.outputs) depends_[v] = depends_[v] || is_float(program().type(v).dtype);
      return false;
    });
    depends_.resize(program().values.size(), false);
  }

  void visit(size_t index) {
    // A copy, because the rule appends nodes.
    const Node node = program().nodes[index];
    bool reached = false, carries = false;
    for (ValueId v : node.outputs) reached = reached || !adjoints_[v].empty();
    for (ValueId v : node.inputs) carries = carries || depends_[v];
    if (!reached || !carries || !has_rule(node)) return;
    tracer_.set_scope(gradient_of(node));
    const std::vector<HTensor> gradients = rule(node);
    if (gradients.size() != node.inputs.size())
      wrong(node,
            "gives " + quantity(gradients.size(), "gradient") + " for " + quantity(node.inputs.size(), "operand"));
    for (size_t i = 0; i < gradients.size(); ++i)
      if (depends_[node.inputs[i]] && gradients[i]) accumulate(node, i, gradients[i]);
  }

  void accumulate(const Node& node, size_t operand, const HTensor& gradient) {
    const ValueId v = node.inputs[operand];
    if (type_of(gradient) != program().type(v))
      wrong(node, "gives " + type_of(gradient).str() + " for operand " + std::to_string(operand + 1) + ", which is " +
                      program().type(v).str());
    adjoints_[v] = adjoints_[v] ? add(adjoints_[v], gradient) : gradient;
  }

  std::vector<HTensor> rule(const Node& node) {
    const std::vector<HTensor> inputs = handles(node.inputs), outputs = handles(node.outputs);
    std::vector<HTensor> dy;
    for (ValueId v : node.outputs) dy.push_back(adjoints_[v]);
    if (node.op == Op::scan) return scan_rule(node, inputs, outputs, dy);
    if (node.op == Op::call) return need_functional(node)->gradient(node.attributes, inputs, outputs, dy);
    if (node.op != Op::host_call) return op_row(node.op).gradient(node.attributes, inputs, outputs, dy);
    for (size_t i = 0; i < dy.size(); ++i)
      if (!dy[i]) dy[i] = zeros_like(outputs[i]);
    std::vector<HTensor> gradients = node.host->gradient(inputs, outputs, dy);
    if (!gradients.empty()) return gradients;
    throw Error(ErrorKind::Plugin, node.host->name() +
                                       " reads numbers and supplies no gradient: it can infer but not train; " +
                                       "write it with harmonics operations or override gradient()");
  }

  std::vector<HTensor> scan_rule(const Node& node, const std::vector<HTensor>& inputs,
                                 const std::vector<HTensor>& outputs, const std::vector<HTensor>& dy) {
    std::vector<bool> wanted;
    for (ValueId v : node.inputs) wanted.push_back(depends_[v]);
    return gradient_scan(node, inputs, outputs, dy, wanted, chooser_);
  }

  [[noreturn]] void wrong(const Node& node, const std::string& what) const {
    const std::string name = node.op == Op::call        ? "functional '" + node.callee + "'"
                             : node.op == Op::host_call ? node.host->name()
                                                        : std::string(op_name(node.op));
    throw Error(node.op == Op::host_call ? ErrorKind::Plugin : ErrorKind::Internal,
                "the gradient of " + name + " " + what);
  }

  std::vector<HTensor> handles(const std::vector<ValueId>& values) {
    std::vector<HTensor> list;
    for (ValueId v : values) list.push_back(tracer_.handle(v));
    return list;
  }

  Tracer& tracer_;
  Chooser* chooser_;
  std::vector<std::pair<ValueId, HTensor>> seeds_;
  std::vector<ValueId> wrt_;
  std::vector<bool> depends_;
  std::vector<HTensor> adjoints_;  // by value
};

}  // namespace

void choose_in_place(Program& program, Node& node, Chooser& chooser) {
  if (op_row(node.op).family == Family::leaf || node.op == Op::host_call) return;
  std::shared_ptr<const HostFunction> chosen = chooser.choose(program, node);
  if (!chosen) return;
  node.op = Op::host_call;
  node.host = std::move(chosen);
  node.callee.clear();
  node.attributes = {};
}

std::vector<HTensor> pullback(Tracer& tracer, const std::vector<std::pair<HTensor, HTensor>>& seeds,
                              const std::vector<HTensor>& wrt, Chooser* chooser) {
  if (Tracer::current() != &tracer)
    throw Error(ErrorKind::Internal, "a gradient is recorded by the innermost open tracer only");
  const NodeScope former = tracer.scope();
  const auto restore = [&] { tracer.set_scope(former); };
  try {
    std::vector<HTensor> results = Differentiator(tracer, seeds, wrt, chooser).run();
    restore();
    return results;
  } catch (...) {
    restore();
    throw;
  }
}

std::vector<HTensor> gradient(Tracer& tracer, const HTensor& value, const std::vector<HTensor>& wrt, Chooser* chooser) {
  const TensorType type = type_of(value);
  if (type.shape.rank() != 0 || !is_float(type.dtype))
    throw Error(ErrorKind::Shape,
                "a gradient is taken of a floating-point scalar, not of " + type.str() + "; reduce it first");
  return pullback(tracer, {{value, HTensor()}}, wrt, chooser);
}

}  // namespace harmonics::engine
