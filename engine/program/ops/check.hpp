// Checks and errors of type inference. Messages name the operation, the actual types and the requirement.
#pragma once

#include <span>
#include <string>

#include "engine/program/op.hpp"

namespace harmonics::engine {

// Returns "f32[64, 10] and f32[64, 12]".
std::string types_text(std::span<const TensorType> types);

// Throws "add: operands are f32[64, 10] and f32[64, 12]; shapes must be equal".
[[noreturn]] void misfit(Op op, ErrorKind kind, std::span<const TensorType> inputs, const std::string& rule);

// Throws for operands of stored types, on which arithmetic is not defined.
void expect_plain(Op op, std::span<const TensorType> inputs);
// Requires this number of operands, and calls expect_plain.
void expect_operands(Op op, std::span<const TensorType> inputs, size_t count);
// Require the element type of operand `which`, counted from 0.
void expect_float(Op op, std::span<const TensorType> inputs, size_t which = 0);
void expect_number(Op op, std::span<const TensorType> inputs, size_t which = 0);  // float or integer
void expect_bool(Op op, std::span<const TensorType> inputs, size_t which = 0);
void expect_integer(Op op, std::span<const TensorType> inputs, size_t which = 0);
void expect_same_dtype(Op op, std::span<const TensorType> inputs, size_t a = 0, size_t b = 1);
void expect_same_shape(Op op, std::span<const TensorType> inputs, size_t a = 0, size_t b = 1);
// Returns the axis, which must be in [0, rank) of operand `which`.
int64_t expect_axis(Op op, std::span<const TensorType> inputs, int64_t axis, size_t which = 0);
// Returns a result type. Throws for negative dimensions and for sizes that overflow.
TensorType checked_type(Op op, DType dtype, const Shape& shape);

}  // namespace harmonics::engine
