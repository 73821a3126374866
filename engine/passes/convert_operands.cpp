#include <algorithm>

#include "engine/passes/pass.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

bool is_narrow_float(DType dtype) { return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16; }

// Returns whether the node is a product summed in f32 whose operands or result have other types.
bool is_product_in_f32(const Program& program, const Node& node) {
  if (node.op != Op::dot || node.attributes.text("accumulate", "") == "f64") return false;
  const DType a = program.type(node.inputs[0]).dtype, b = program.type(node.inputs[1]).dtype,
              y = program.type(node.outputs[0]).dtype;
  return is_narrow_float(a) && is_narrow_float(b) && is_float(y) && (a != DType::F32 || b != DType::F32 || a != y);
}

}  // namespace

Program convert_operands(const Program& program, const HasKernel& has_kernel) {
  const auto is_candidate = [&](const Node& node) { return is_product_in_f32(program, node); };
  if (std::none_of(program.nodes.begin(), program.nodes.end(), is_candidate)) return program;
  Rewriter rewriter(program);
  bool any = false;
  for (const Node& node : program.nodes) {
    if (!is_product_in_f32(program, node) || has_kernel(program, node)) {
      rewriter.copy(node);
      continue;
    }
    any = true;
    const auto converted = [&](ValueId v, DType to) {
      const TensorType from = rewriter.to().type(v);
      if (from.dtype == to) return v;
      Node cast{};
      cast.op = Op::cast;
      cast.attributes.set("dtype", static_cast<int64_t>(to));
      cast.inputs = {v};
      cast.scope = node.scope;
      const uint32_t index = rewriter.to().append(std::move(cast), {{to, from.shape}});
      return rewriter.to().nodes[index].outputs[0];
    };
    Node product = rewriter.prepared(node);
    for (ValueId& v : product.inputs) v = converted(v, DType::F32);
    product.attributes = axes_of_dot(node.attributes);
    const TensorType y = program.type(node.outputs[0]);
    const uint32_t index = rewriter.to().append(std::move(product), {{DType::F32, y.shape}});
    rewriter.map(node.outputs[0], converted(rewriter.to().nodes[index].outputs[0], y.dtype));
  }
  return any ? rewriter.finish() : program;
}

}  // namespace harmonics::engine
