#include "engine/program/ops/check.hpp"

#include <harmonics/quantity.hpp>

namespace harmonics::engine {

std::string types_text(std::span<const TensorType> types) {
  std::string text;
  for (size_t i = 0; i < types.size(); ++i) {
    if (i) text += i + 1 == types.size() ? " and " : ", ";
    text += types[i].str();
  }
  return text.empty() ? "none" : text;
}

void misfit(Op op, ErrorKind kind, std::span<const TensorType> inputs, const std::string& rule) {
  const char* noun = inputs.size() == 1 ? ": the operand is " : ": operands are ";
  throw Error(kind, std::string(op_name(op)) + noun + types_text(inputs) + "; " + rule);
}

void expect_plain(Op op, std::span<const TensorType> inputs) {
  if (op == Op::cast || op == Op::gather || op == Op::stop_gradient) return;  // these check stored types themselves
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_stored(inputs[i].dtype))
      misfit(op, ErrorKind::Type, inputs,
             (inputs.size() == 1 ? "" : "operand " + std::to_string(i + 1) + " is ") +
                 std::string(dtype_name(inputs[i].dtype)) +
                 " is a stored type: cast it to f32 first, or make it the weight of linear or the table of embedding");
}

void expect_operands(Op op, std::span<const TensorType> inputs, size_t count) {
  if (inputs.size() == count) return expect_plain(op, inputs);
  throw Error(ErrorKind::Type, std::string(op_name(op)) + " takes " + quantity(count, "operand") + ", not " +
                                   std::to_string(inputs.size()) +
                                   (inputs.empty() ? "" : " (" + types_text(inputs) + ")"));
}

namespace {
void expect_kind(Op op, std::span<const TensorType> inputs, size_t which, bool holds, const char* kind) {
  if (holds) return;
  misfit(op, ErrorKind::Type, inputs,
         inputs.size() == 1 ? "it must be of " + std::string(kind) + " type"
                            : "operand " + std::to_string(which + 1) + " must be of " + kind + " type");
}
}  // namespace

void expect_float(Op op, std::span<const TensorType> inputs, size_t which) {
  expect_kind(op, inputs, which, is_float(inputs[which].dtype), "floating-point");
}
void expect_number(Op op, std::span<const TensorType> inputs, size_t which) {
  expect_kind(op, inputs, which, inputs[which].dtype != DType::Bool, "number");
}
void expect_bool(Op op, std::span<const TensorType> inputs, size_t which) {
  expect_kind(op, inputs, which, inputs[which].dtype == DType::Bool, "bool");
}
void expect_integer(Op op, std::span<const TensorType> inputs, size_t which) {
  expect_kind(op, inputs, which, is_integer(inputs[which].dtype), "integer");
}
void expect_same_dtype(Op op, std::span<const TensorType> inputs, size_t a, size_t b) {
  if (inputs[a].dtype != inputs[b].dtype) misfit(op, ErrorKind::Type, inputs, "element types must be equal; cast one");
}
void expect_same_shape(Op op, std::span<const TensorType> inputs, size_t a, size_t b) {
  if (inputs[a].shape != inputs[b].shape) misfit(op, ErrorKind::Shape, inputs, "shapes must be equal");
}

int64_t expect_axis(Op op, std::span<const TensorType> inputs, int64_t axis, size_t which) {
  const uint32_t rank = inputs[which].shape.rank();
  if (axis < 0 || axis >= static_cast<int64_t>(rank))
    misfit(
        op, ErrorKind::Shape, inputs,
        "axis " + std::to_string(axis) + " does not exist; axes go from 0 to " + std::to_string(rank) + " exclusive");
  return axis;
}

TensorType checked_type(Op op, DType dtype, const Shape& shape) {
  if (op != Op::cast && op != Op::gather && is_stored(dtype))
    throw Error(ErrorKind::Type, std::string(op_name(op)) + ": the result cannot be " + std::string(dtype_name(dtype)) +
                                     ", a stored type; cast a result of f32 to it");
  try {
    return from_c(make_type(dtype, shape));
  } catch (const Error& e) {
    throw Error(e.kind(), std::string(op_name(op)) + ": " + e.what());
  }
}

}  // namespace harmonics::engine
