#include <cmath>
#include <map>
#include <optional>

#include "engine/passes/pass.hpp"

namespace harmonics::engine {

namespace {

// The input that the call can read as bytes times a scale instead of f32.
std::optional<size_t> scaled_input(const Node& node) {
  const FunctionalPtr f = called_by(node);
  return f && !node.attributes.has("scale") ? f->traits.scaled : std::nullopt;
}

// mul(cast(bytes), scale)
struct Scaled {
  ValueId bytes;
  double scale;
};

class ScaleFuser {
 public:
  ScaleFuser(const Program& program, const AcceptsCall& accepts)
      : program_(program), accepts_(accepts), rewriter_(program) {}

  Program run() {
    const std::vector<uint32_t> uses = count_uses(program_);
    for (const Node& node : program_.nodes)
      if (const auto scaled = scaled_by(node); scaled && read_by_products_alone(node.outputs[0], *scaled, uses))
        scaled_.emplace(node.outputs[0], *scaled);
    if (scaled_.empty()) return program_;
    for (const Node& node : program_.nodes) {
      const Scaled* s = scaled_of(node);
      if (!s) {
        rewriter_.copy(node);
        continue;
      }
      Node read = rewriter_.prepared(node);
      read.inputs[*scaled_input(node)] = rewriter_.mapped(s->bytes);
      read.attributes.set("scale", s->scale);
      rewriter_.put(std::move(read), node);
    }
    return dce(rewriter_.finish());
  }

 private:
  std::optional<Scaled> scaled_by(const Node& node) const {
    if (node.op != Op::mul || program_.type(node.outputs[0]).dtype != DType::F32) return std::nullopt;
    for (const size_t which : {size_t{0}, size_t{1}}) {
      const Node &cast = program_.producer(node.inputs[which]), &factor = program_.producer(node.inputs[1 - which]);
      if (cast.op != Op::cast || factor.op != Op::full || program_.type(cast.inputs[0]).dtype != DType::U8) continue;
      const double scale = factor.attributes.number("value");
      // a normal scale maps 0 to 0 and nothing else to 0
      if (std::isnormal(static_cast<float>(scale))) return Scaled{cast.inputs[0], scale};
    }
    return std::nullopt;
  }

  bool read_by_products_alone(ValueId value, const Scaled& scaled, const std::vector<uint32_t>& uses) const {
    uint32_t products = 0;
    for (const Node& node : program_.nodes) {
      const auto input = scaled_input(node);
      if (input && node.inputs[*input] == value && accepted(node, *input, scaled)) ++products;
    }
    return products > 0 && products == uses[value];
  }

  bool accepted(const Node& node, size_t input, const Scaled& scaled) const {
    std::vector<TensorType> types = input_types(program_, node);
    types[input].dtype = DType::U8;
    return accepts_(node.callee, AttributeMap(node.attributes).set("scale", scaled.scale), types);
  }

  const Scaled* scaled_of(const Node& node) const {
    const auto input = scaled_input(node);
    const auto at = input ? scaled_.find(node.inputs[*input]) : scaled_.end();
    return at == scaled_.end() ? nullptr : &at->second;
  }

  const Program& program_;
  const AcceptsCall& accepts_;
  Rewriter rewriter_;
  std::map<ValueId, Scaled> scaled_;  // by the product of bytes and scale
};

}  // namespace

Program fuse_scales(const Program& program, const AcceptsCall& accepts) { return ScaleFuser(program, accepts).run(); }

}  // namespace harmonics::engine
