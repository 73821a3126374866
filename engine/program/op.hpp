// Table of primitives: type inference, reference evaluation, gradient.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// A tensor in the reference evaluator: type and row-major memory.
struct ConstView {
  TensorType type;
  const void* data;
};
struct View {
  TensorType type;
  void* data;
};

enum class Family { leaf, control, source, unary, binary, ternary, layout, index, reduce, linear, storage, mark };

struct OpRow {
  Op op;
  std::string_view name;
  Family family;
  // Returns the result types. Throws ErrorKind::Shape or Type, with the actual types, for invalid operands.
  std::vector<TensorType> (*infer)(const AttributeMap&, std::span<const TensorType> inputs);
  // Reference evaluation. Sums in index order, in f64 for f64, otherwise in f32. Outputs must not overlap inputs.
  void (*evaluate)(const AttributeMap&, std::span<const ConstView> inputs, std::span<const View> outputs);
  // Returns the gradients of the inputs (empty: none) from inputs, outputs and the outputs' gradients (empty: zero),
  // using public operations. Null: not differentiable, so gradients stop here (integers, comparisons, argmax, floor
  // ...).
  std::vector<HTensor> (*gradient)(const AttributeMap&, std::span<const HTensor> inputs,
                                   std::span<const HTensor> outputs, std::span<const HTensor> output_gradients);
};

const OpRow& op_row(Op op);
std::string_view op_name(Op op);
// Returns the row of this name that apply() may call (no leaves, no control), or null.
const OpRow* find_op(std::string_view name);
// Returns any row of this name, or null.
const OpRow* find_any_op(std::string_view name);
std::span<const OpRow> op_rows();
// Returns whether the operation is a leaf with a name.
inline bool is_named_leaf(Op op) { return op == Op::input || op == Op::parameter || op == Op::state; }
inline bool is_elementwise(Op op) {
  const Family f = op_row(op).family;
  return f == Family::unary || f == Family::binary || f == Family::ternary;
}

// Return rows with infer, evaluate and gradient, one function per family (ops/FAMILY.cpp). The table sets op, name and
// family.
OpRow source_row(Op op), unary_row(Op op), binary_row(Op op), ternary_row(Op op), layout_row(Op op), index_row(Op op),
    reduce_row(Op op), linear_row(Op op), storage_row(Op op), mark_row(Op op);

}  // namespace harmonics::engine
