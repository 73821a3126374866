// The row of a primitive: type inference, reference evaluation, gradient.
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
  // Result types; throws ErrorKind::Shape or Type with the actual types if the operands do not fit.
  std::vector<TensorType> (*infer)(const AttributeMap&, std::span<const TensorType> inputs);
  // Reference evaluation: sums in index order, in f64 for f64, else in f32. Outputs do not overlap inputs.
  void (*evaluate)(const AttributeMap&, std::span<const ConstView> inputs, std::span<const View> outputs);
  // Gradients of the inputs (empty: none) from inputs, outputs and the outputs' gradients (empty: zero), written with
  // public operations. Null: not differentiable, gradients stop here (integers, comparisons, argmax, floor ...).
  std::vector<HTensor> (*gradient)(const AttributeMap&, std::span<const HTensor> inputs,
                                   std::span<const HTensor> outputs, std::span<const HTensor> output_gradients);
};

const OpRow& op_row(Op op);
std::string_view op_name(Op op);
// By name; null if there is none. Only rows that apply() may call (no leaves, no control).
const OpRow* find_op(std::string_view name);
// By name, all rows.
const OpRow* find_any_op(std::string_view name);
std::span<const OpRow> op_rows();
// Leaves with a name.
inline bool is_named_leaf(Op op) { return op == Op::input || op == Op::parameter || op == Op::state; }
inline bool is_elementwise(Op op) {
  const Family f = op_row(op).family;
  return f == Family::unary || f == Family::binary || f == Family::ternary;
}

// Rows with infer, evaluate and gradient filled in, one function per family file (ops/FAMILY.cpp); the table itself
// sets op, name and family.
OpRow source_row(Op op), unary_row(Op op), binary_row(Op op), ternary_row(Op op), layout_row(Op op), index_row(Op op),
    reduce_row(Op op), linear_row(Op op), storage_row(Op op), mark_row(Op op);

}  // namespace harmonics::engine
