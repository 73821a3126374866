#include "engine/passes/continue_sequence.hpp"

#include <algorithm>

#include <fmt/core.h>

#include <harmonics/ops.hpp>

#include "engine/passes/pass.hpp"
#include "engine/program/op.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

constexpr int kNone = -1;  // no axis of positions

struct Refused {
  std::string why;
};

std::string name_of(const Node& node) { return node.op == Op::call ? node.callee : std::string(op_name(node.op)); }

// Determines the axis of positions of each value in a program. Throws Refused if a result mixes positions.
class PositionAxes {
 public:
  PositionAxes(const Program& program, int64_t window) : program_(program), window_(window) {
    axes_.resize(program.values.size(), kNone);
  }
  int of(ValueId v) const { return axes_[v]; }
  void set(ValueId v, int axis) { axes_[v] = axis; }
  bool any(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return of(v) != kNone; });
  }
  const Shape& shape(ValueId v) const { return program_.type(v).shape; }

  // Returns whether the value is constant along the axis.
  bool is_uniform(ValueId v, int axis) const {
    if (of(v) != kNone) return false;
    const Node& node = program_.producer(v);
    if (node.op == Op::full) return true;
    if (node.op == Op::broadcast) {
      const int inner = axis - static_cast<int>(shape(v).rank()) + static_cast<int>(shape(node.inputs[0]).rank());
      return inner < 0 || shape(node.inputs[0])[static_cast<uint32_t>(inner)] == 1 || is_uniform(node.inputs[0], inner);
    }
    return is_elementwise(node.op) &&
           std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId x) { return is_uniform(x, axis); });
  }

  // Sets the axes of a node's results.
  void follow(const Node& node) {
    if (!any(node)) return;
    switch (op_row(node.op).family) {
      case Family::unary:
      case Family::binary:
      case Family::ternary:
      case Family::mark:
        return set(node.outputs[0], elementwise(node));
      case Family::layout:
        return set(node.outputs[0], layout(node));
      case Family::reduce:
        if (node.op == Op::reduce_window || node.op == Op::cumsum) break;
        return set(node.outputs[0], reduced(node));
      default:
        break;
    }
    if (node.op == Op::dot) return set(node.outputs[0], product(node));
    if (node.op == Op::gather && of(node.inputs[0]) == kNone)
      return set(node.outputs[0], static_cast<int>(node.attributes.integer("axis")) + of(node.inputs[1]));
    if (node.op == Op::call) return called(node);
    refuse(node, "is not computed position by position");
  }

  [[noreturn]] void refuse(const Node& node, const std::string& why) const {
    const std::string scope = program_.scope_of(node).text();
    throw Refused{name_of(node) + (scope.empty() ? " " : " at '" + scope + "' ") + why};
  }

 private:
  int elementwise(const Node& node) const {
    int axis = kNone;
    for (ValueId v : node.inputs)
      if (of(v) != kNone) axis = of(v);
    for (ValueId v : node.inputs)
      if (of(v) != axis && !is_uniform(v, axis)) refuse(node, "uses a table of the window's positions");
    return axis;
  }
  int layout(const Node& node) const {
    const ValueId x = node.inputs[0];
    const int axis = of(x);
    const auto at = static_cast<uint32_t>(axis);
    switch (node.op) {
      case Op::reshape: {
        const int64_t before = shape(x).slice(0, at).count();
        const Shape& to = shape(node.outputs[0]);
        int64_t passed = 1;
        for (uint32_t i = 0; i < to.rank() && passed <= before; passed *= to[i++])
          if (passed == before && to[i] == window_) return static_cast<int>(i);
        break;
      }
      case Op::transpose: {
        const auto& order = node.attributes.integers("permutation");
        return static_cast<int>(std::find(order.begin(), order.end(), axis) - order.begin());
      }
      case Op::broadcast:
        return axis + static_cast<int>(shape(node.outputs[0]).rank() - shape(x).rank());
      case Op::slice:
        if (shape(node.outputs[0])[at] == window_) return axis;
        break;
      case Op::concat:
        if (node.attributes.integer("axis") == axis) break;
        for (ValueId v : node.inputs)
          if (of(v) != axis) refuse(node, "joins positions with other values");
        return axis;
      default:
        break;
    }
    refuse(node, "moves positions");
  }
  int reduced(const Node& node) const {
    const int axis = of(node.inputs[0]);
    std::vector<int64_t> axes;
    if (node.op == Op::argmax || node.op == Op::argmin)
      axes = {node.attributes.integer("axis")};
    else
      axes = node.attributes.integers("axes");
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) refuse(node, "reduces over positions");
    if (shape(node.outputs[0]).rank() == shape(node.inputs[0]).rank()) return axis;
    return axis - static_cast<int>(std::count_if(axes.begin(), axes.end(), [&](int64_t a) { return a < axis; }));
  }
  // Result axes: batch, free ones of the left side, free ones of the right side.
  int product(const Node& node) const {
    const bool left = of(node.inputs[0]) != kNone;
    if (left && of(node.inputs[1]) != kNone) refuse(node, "multiplies positions by each other");
    const int axis = of(node.inputs[left ? 0 : 1]);
    const std::string side = left ? "lhs_" : "rhs_";
    const auto &contract = node.attributes.integers(side + "contract"),
               &batch = node.attributes.integers(side + "batch");
    const auto in = [&](const std::vector<int64_t>& list) {
      return std::find(list.begin(), list.end(), axis) != list.end();
    };
    if (in(contract) || in(batch)) refuse(node, "sums over positions");
    int place = static_cast<int>(batch.size());
    for (int i = 0; i < axis; ++i) {
      const auto is_in = [&](const std::vector<int64_t>& list) {
        return std::find(list.begin(), list.end(), i) != list.end();
      };
      place += !is_in(contract) && !is_in(batch);
    }
    if (!left)
      place += static_cast<int>(shape(node.inputs[0]).rank() - node.attributes.integers("lhs_contract").size() -
                                node.attributes.integers("lhs_batch").size());
    return place;
  }
  // Follows a call through its body.
  void called(const Node& node) {
    const FunctionalPtr functional = FunctionalTable::global().find(node.callee);
    if (!functional) refuse(node, "is not a registered function");
    const auto body = body_program(*functional, node.attributes, input_types(program_, node));
    PositionAxes inner(*body, window_);
    try {
      for (const Node& n : body->nodes) {
        if (n.op == Op::input) inner.set(n.outputs[0], of(node.inputs[static_cast<size_t>(std::stoi(n.callee))]));
        inner.follow(n);
      }
    } catch (const Refused&) {
      refuse(node, "is not computed position by position");
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) set(node.outputs[i], inner.of(body->outputs.at(i).value));
  }

  const Program& program_;
  int64_t window_;
  std::vector<int> axes_;
};

class Continuing {
 public:
  Continuing(const Program& program, const std::string& input, const ContinuedSizes& sizes)
      : from_(program), input_(input), sizes_(sizes), axes_(program, sizes.window), tracer_(program.name) {
    values_.resize(program.values.size());
  }

  Program run() {
    if (!from_.updates.empty()) throw Refused{"a run changes '" + from_.updates[0].name + "'"};
    start_ = tracer_.input("start", {DType::I32, Shape{1}});
    for (const Node& node : from_.nodes) {
      const TraceScope scope(from_.scopes[node.scope]);
      const std::vector<HTensor> results = continued(node);
      for (size_t i = 0; i < node.outputs.size(); ++i) values_[node.outputs[i]] = results.at(i);
    }
    for (const NamedValue& output : from_.outputs) tracer_.output(output.name, values_[output.value]);
    return tracer_.take();
  }

 private:
  std::vector<HTensor> continued(const Node& node) {
    const TensorType& type = from_.type(node.outputs[0]);
    switch (node.op) {
      case Op::input: {
        if (node.callee != input_) throw Refused{"it reads '" + node.callee + "' besides '" + input_ + "'"};
        TensorType tokens = type;
        tokens.shape[1] = sizes_.tokens;
        axes_.set(node.outputs[0], 1);
        return {tracer_.input(node.callee, tokens)};
      }
      case Op::parameter:
        return {tracer_.parameter(node.callee, type)};
      case Op::state:
        return {tracer_.state(node.callee, type)};
      case Op::literal:
        return {node.literal};
      default:
        break;
    }
    if (node.op == Op::host_call || node.op == Op::scan || node.op == Op::fused_elementwise)
      axes_.refuse(node, "is not computed position by position");
    if (const FunctionalPtr f = axes_.any(node) ? called_by(node) : nullptr) {
      if (takes(*f, "lengths") && f->signature.fewest_inputs() == 3) return attention(node);
      if (takes(*f, "positions")) return rope(node);
    }
    axes_.follow(node);
    std::vector<HTensor> inputs;
    const int axis = axes_.of(node.outputs[0]);
    for (ValueId v : node.inputs)
      inputs.push_back(axis != kNone && is_elementwise(node.op) ? narrowed(v, axis) : values_[v]);
    return apply(name_of(node), shorter(node, axis), inputs);
  }

  static bool takes(const Functional& functional, std::string_view optional) {
    const auto& inputs = functional.signature.inputs;
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const OperandSpec& o) { return o.optional && o.name == optional; });
  }

  // Returns the attributes of a node whose result has `tokens` positions.
  AttributeMap shorter(const Node& node, int axis) const {
    AttributeMap a = node.attributes;
    const char* name = node.op == Op::reshape || node.op == Op::broadcast || node.op == Op::full ? "shape" : "limits";
    if (axis == kNone || (*name == 'l' && node.op != Op::slice)) return a;
    std::vector<int64_t> sizes = a.integers(name);
    sizes[static_cast<size_t>(axis)] = sizes_.tokens;
    return a.set(name, sizes);
  }
  // Returns an operand of an elementwise operation, reduced to `tokens` positions.
  HTensor narrowed(ValueId v, int axis) {
    if (axes_.of(v) != kNone) return values_[v];
    const Node& node = from_.producer(v);
    std::vector<HTensor> inputs;
    for (ValueId x : node.inputs) {
      const int inner = axis - static_cast<int>(axes_.shape(v).rank()) + static_cast<int>(axes_.shape(x).rank());
      const bool wide = inner >= 0 && axes_.shape(x)[static_cast<uint32_t>(inner)] == sizes_.window;
      inputs.push_back(wide ? narrowed(x, inner) : values_[x]);
    }
    return one(name_of(node), shorter(node, axis), inputs);
  }

  // Continues a rotary embedding of x.
  std::vector<HTensor> rope(const Node& node) {
    const bool first = node.attributes.flag("positions_first");
    const int axis = axes_.of(node.inputs[0]);
    if (!node.attributes.text("operands", "").empty()) axes_.refuse(node, "has positions of its own");
    if (axis != static_cast<int>(axes_.shape(node.inputs[0]).rank()) - (first ? 3 : 2))
      axes_.refuse(node, "turns by another axis than the positions");
    axes_.set(node.outputs[0], axis);
    const HTensor positions = reshape(start_, Shape{1}) + static_cast<double>(node.attributes.integer("offset", 0));
    const Shape tokens{sizes_.tokens};
    AttributeMap a = node.attributes;
    a.set("operands", "positions").set("offset", int64_t{0});
    return apply(node.callee, a, {values_[node.inputs[0]], broadcast(positions, tokens) + iota(DType::I32, tokens, 0)});
  }

  // Continues an attention over queries, keys and values.
  std::vector<HTensor> attention(const Node& node) {
    if (!node.attributes.flag("causal")) axes_.refuse(node, "is not causal");
    if (!node.attributes.text("operands", "").empty()) axes_.refuse(node, "has further operands");
    if (!node.attributes.flag("positions_first")) axes_.refuse(node, "has its heads first");
    for (ValueId v : node.inputs)
      if (axes_.of(v) != 1) axes_.refuse(node, "attends to another sequence");
    axes_.set(node.outputs[0], 1);
    axes_.set(node.outputs[1], 2);
    const HTensor keys = cached("keys", values_[node.inputs[1]]), values = cached("values", values_[node.inputs[2]]);
    ++caches_;
    AttributeMap a = node.attributes;
    return apply(node.callee, a.set("operands", "lengths"),
                 {values_[node.inputs[0]], keys, values, start_ + static_cast<double>(sizes_.tokens)});
  }
  HTensor cached(const char* what, const HTensor& rows) {
    TensorType type = type_of(rows);
    type.shape[1] = sizes_.window;
    const std::string name = fmt::format("cache.{}.{}", caches_, what);
    const HTensor all = one("cache_append", {}, {tracer_.state(name, type), rows, start_});
    tracer_.update(name, all);
    return all;
  }
  static HTensor one(std::string_view op, const AttributeMap& a, const std::vector<HTensor>& inputs) {
    return apply(op, a, inputs).at(0);
  }

  const Program& from_;
  const std::string& input_;
  ContinuedSizes sizes_;
  PositionAxes axes_;
  Tracer tracer_;
  std::vector<HTensor> values_;  // by value of from_
  HTensor start_;
  int caches_ = 0;
};

}  // namespace

ContinuedProgram continue_sequence(const Program& program, const std::string& input, const ContinuedSizes& sizes) {
  const Program used = dce(program);
  try {
    const Node* leaf = used.leaf(Op::input, input);
    if (!leaf) throw Refused{"it does not read '" + input + "'"};
    const Shape& shape = used.type(leaf->outputs[0]).shape;
    if (shape.rank() < 2 || shape[0] != 1 || shape[1] != sizes.window || sizes.window < 2)
      throw Refused{"'" + input + "' is " + shape.str() + ", not a window of one sequence"};
    ContinuedProgram result;
    result.program = dce(Continuing(used, input, sizes).run());
    return result;
  } catch (const Refused& refused) {
    return {{}, refused.why};
  }
}

}  // namespace harmonics::engine
