// Checks on attributes that are lists, for the operations that take axes, starts, strides, paddings.
#pragma once

#include <vector>

#include "engine/program/ops/check.hpp"

namespace harmonics {

// The axes of the first operand as a mask; refuses one out of range or named twice.
std::vector<bool> expect_axes(Op op, std::span<const TensorType> inputs, const std::vector<int64_t>& axes,
                              const std::string& name, size_t which = 0);
// The list attribute `name` with exactly `length` entries, none smaller than `least`.
const std::vector<int64_t>& expect_list(Op op, std::span<const TensorType> inputs, const AttributeMap& attributes,
                                        const std::string& name, size_t length, int64_t least);
// checked_type, for sizes of which there may be too many.
TensorType checked_type(Op op, std::span<const TensorType> inputs, DType dtype, const std::vector<int64_t>& dims);

std::string list_text(const std::vector<int64_t>& values);  // "[1, 2]"

}  // namespace harmonics
