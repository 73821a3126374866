#include <algorithm>
#include <limits>

#include "engine/passes/pass.hpp"
#include "engine/passes/precision_recipe.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

// Returns the element type of the operand that may have a stored type, or nothing if there is no such operand. A cast
// of a stored type counts as that type, because absorb_conversions moves it into the product.
std::optional<DType> weight_of(const Program& program, const Node& node) {
  const FunctionalPtr f = called_by(node);
  const bool may_be_stored = f && f->traits.stored;
  const size_t weight = may_be_stored ? *f->traits.stored : 1;
  if (weight >= node.inputs.size()) return std::nullopt;
  const Node& maker = program.producer(node.inputs[weight]);
  if (may_be_stored && maker.op == Op::cast && is_stored(program.type(maker.inputs[0]).dtype))
    return program.type(maker.inputs[0]).dtype;
  return program.type(node.inputs[weight]).dtype;
}

int64_t product_of(const Shape& shape, const std::vector<int64_t>& axes) {
  int64_t n = 1;
  for (const int64_t axis : axes) n *= shape[static_cast<uint32_t>(axis)];
  return n;
}

// Returns the minimum of rows, columns and depth, or the largest integer for calls whose sides are unknown.
int64_t least_side(const Program& program, const Node& node) {
  if (node.op == Op::dot) {
    const Shape &a = program.type(node.inputs[0]).shape, &b = program.type(node.inputs[1]).shape;
    const int64_t batch = product_of(a, node.attributes.integers("lhs_batch")),
                  depth = product_of(a, node.attributes.integers("lhs_contract"));
    const int64_t each = std::max<int64_t>(1, batch * depth);
    return std::min({depth, a.count() / each, b.count() / each});
  }
  if (const FunctionalPtr f = called_by(node); f && f->traits.transposable == size_t{1}) {  // an affine map
    const Shape &x = program.type(node.inputs[0]).shape, &w = program.type(node.inputs[1]).shape;
    const int64_t depth = std::max<int64_t>(1, x.back());
    return std::min({depth, x.count() / depth, w.count() / depth});
  }
  return std::numeric_limits<int64_t>::max();
}

bool applies(const PrecisionRule& rule, const Program& program, const Node& node) {
  const Phase phase = program.scope_of(node).phase;
  if (!rule.phases.empty() && std::find(rule.phases.begin(), rule.phases.end(), phase) == rule.phases.end())
    return false;
  if (!rule.functional.empty() &&
      rule.functional != (node.op == Op::call ? node.callee : std::string(op_name(node.op))))
    return false;
  const std::optional<DType> weight = weight_of(program, node);
  if (rule.weight && rule.weight != weight) return false;
  if (rule.stored && *rule.stored != (weight && is_stored(*weight))) return false;
  return rule.least_side == 0 || least_side(program, node) >= rule.least_side;
}

}  // namespace

bool multiplies(const Program& program, const Node& node) {
  if (node.op == Op::scan)
    return std::any_of(node.body->nodes.begin(), node.body->nodes.end(),
                       [&](const Node& n) { return multiplies(*node.body, n); });
  if (node.op != Op::call) return node.op == Op::dot;
  const FunctionalPtr f = called_by(node);
  if (!f) return false;
  const auto body = body_program(*f, node.attributes, input_types(program, node));
  return std::any_of(body->nodes.begin(), body->nodes.end(), [&](const Node& n) { return multiplies(*body, n); });
}

bool can_quantise_rows(const Program& program, const Node& node, const std::string& type) {
  const FunctionalPtr f = called_by(node);
  if (!f || !f->signature.attribute("activation_type") || node.attributes.has("activation_type")) return false;
  const TensorType& x = program.type(node.inputs[0]);
  return is_float(x.dtype) && x.dtype != DType::F64 && is_forward(program, node) &&
         x.shape.back() % element_type(dtype_named(type)).block == 0;
}

namespace {

std::optional<ProductDecision> decision(const Program& program, const Node& node, const PrecisionRecipe& recipe) {
  if (recipe.policy)
    if (auto decided = recipe.policy(program, node)) return decided;
  for (const PrecisionRule& rule : recipe.rules)
    if (applies(rule, program, node)) return ProductDecision{rule.rounding, rule.activation_type};
  return std::nullopt;
}

}  // namespace

Program set_precision(const Program& program, const PrecisionRecipe& recipe) {
  if (recipe.rules.empty() && !recipe.policy) return program;
  Program now = program;
  bool any = false;
  for (Node& node : now.nodes) {
    if (!multiplies(now, node)) continue;
    const auto decided = decision(now, node, recipe);
    if (!decided) continue;
    if (now.scope_of(node).rounding != decided->rounding) {
      NodeScope scope = now.scope_of(node);
      scope.rounding = decided->rounding;
      node.scope = now.scope_index(scope);
      any = true;
    }
    if (!decided->activation_type.empty() && can_quantise_rows(now, node, decided->activation_type)) {
      node.attributes.set("activation_type", decided->activation_type);
      any = true;
    }
  }
  return any ? now : program;
}

}  // namespace harmonics::engine
