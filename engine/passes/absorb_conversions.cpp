#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "engine/passes/match.hpp"
#include "engine/passes/uses.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

// The unconverted source of a value, which a product can read instead.
struct Absorbed {
  ValueId source;
  double scale = 0;  // not 0: the value is `scale` times the integers of `source`
};

// Returns whether `to` represents every value of `from` exactly.
bool widens(DType from, DType to) {
  if (to == DType::F32) return from == DType::F16 || from == DType::BF16 || is_stored(from);
  return to == DType::F64 && (from == DType::F16 || from == DType::BF16 || from == DType::F32);
}

// Returns the scale if it is a normal number, which maps only 0 to 0.
std::optional<double> usable_scale(const Node& factor) {
  if (factor.op != Op::full) return std::nullopt;
  const double scale = factor.attributes.number("value");
  return std::isnormal(static_cast<float>(scale)) ? std::optional(scale) : std::nullopt;
}

std::optional<Absorbed> absorbed(const Program& program, ValueId v) {
  using namespace match;
  const Node& node = program.producer(v);
  const DType to = program.type(v).dtype;
  ValueId source = 0, factor = 0, zero_point = 0;
  if (op(Op::cast, any(source))(program, v)) {
    if (!widens(program.type(source).dtype, to)) return std::nullopt;
    return Absorbed{source};
  }
  if (to != DType::F32) return std::nullopt;
  const bool product = commuted(Op::mul, op(Op::cast, any(source)), [&](const Program& p, ValueId f) {
    return factor = f, p.producer(f).op == Op::full;
  })(program, v);
  const bool dequantized = !product && node.op == Op::dequantize &&
                           operands(program, node, any(source), any(factor), any(zero_point)) &&
                           is_zero(program, zero_point) && program.type(factor).shape.rank() == 0;
  if ((!product && !dequantized) || !is_integer(program.type(source).dtype)) return std::nullopt;
  const std::optional<double> scale = usable_scale(program.producer(factor));
  return scale ? std::optional(Absorbed{source, *scale}) : std::nullopt;
}

// Returns the node changed to read `source` at `input`, or nothing if its definition does not allow that.
std::optional<Node> reading(const Program& program, const Node& node, size_t input, const Absorbed& by) {
  Node now = node;
  now.inputs[input] = by.source;
  const FunctionalPtr f = called_by(node);
  if (by.scale != 0) {
    if (!f || f->traits.scaled != input || node.attributes.has("scale")) return std::nullopt;
    now.attributes.set("scale", by.scale);
    return now;
  }
  const DType source = program.type(by.source).dtype;
  const bool takes_stored = f && f->traits.stored == input;
  const bool takes_floats = takes_stored || (input <= 1 && (node.op == Op::dot || (f && f->traits.free_types)));
  if (is_stored(source) ? !takes_stored : !takes_floats) return std::nullopt;
  // Rows of x are quantised in the type that they have.
  const bool quantises = input == 0 && !node.attributes.text("activation_type", "").empty();
  if (node.attributes.has("scale") || quantises) return std::nullopt;
  const bool sums = node.op == Op::dot || f->signature.attribute("accumulate");
  if (sums && program.type(node.inputs[input]).dtype == DType::F64)
    now.attributes.set("accumulate", std::string("f64"));
  // Without out_dtype the result would have the type of the operand.
  const bool gives_type = node.op == Op::dot || (input == 0 && !is_stored(source));
  if (gives_type && node.attributes.text("out_dtype", "").empty())
    now.attributes.set("out_dtype", std::string(dtype_name(program.type(node.outputs[0]).dtype)));
  return now;
}

class ConversionAbsorber {
 public:
  ConversionAbsorber(const Program& program, const AcceptsCall& accepts)
      : program_(program), accepts_(accepts), rewriter_(program) {}

  Program run() {
    const Uses uses(program_);
    for (const Node& node : program_.nodes)
      if (node.op == Op::cast || node.op == Op::mul || node.op == Op::dequantize) consider(node.outputs[0], uses);
    if (now_.empty()) return program_;
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
      const Node& node = program_.nodes[i];
      const auto now = now_.find(i);
      if (now == now_.end())
        rewriter_.copy(node);
      else
        rewriter_.put(rewriter_.prepared(now->second), node);
    }
    return dce(rewriter_.finish());
  }

 private:
  // Changes all readers of a conversion or none, since a conversion with a remaining reader would not be removed.
  void consider(ValueId value, const Uses& uses) {
    const std::optional<Absorbed> by = absorbed(program_, value);
    const auto readers = uses.readers(value);
    if (!by || readers.empty() || uses.is_result(value)) return;
    std::map<uint32_t, Node> found;
    for (const uint32_t i : readers) {
      const auto earlier = now_.find(i);
      const Node& node = earlier == now_.end() ? program_.nodes[i] : earlier->second;
      if (std::count(node.inputs.begin(), node.inputs.end(), value) != 1) return;
      const auto input =
          static_cast<size_t>(std::find(node.inputs.begin(), node.inputs.end(), value) - node.inputs.begin());
      std::optional<Node> now = reading(program_, node, input, *by);
      if (!now || !accepted(*now)) return;
      found.emplace(i, std::move(*now));
    }
    for (auto& [i, node] : found) now_.insert_or_assign(i, std::move(node));
  }

  bool accepted(const Node& node) const {
    return accepts_(node.op == Op::call ? node.callee : std::string(op_name(node.op)), node.attributes,
                    input_types(program_, node), program_.scope_of(node).rounding);
  }

  const Program& program_;
  const AcceptsCall& accepts_;
  Rewriter rewriter_;
  std::map<uint32_t, Node> now_;  // changed readers, by node
};

}  // namespace

Program absorb_conversions(const Program& program, const AcceptsCall& accepts) {
  return ConversionAbsorber(program, accepts).run();
}

}  // namespace harmonics::engine
