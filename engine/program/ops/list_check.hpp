// Checks of list attributes: axes, starts, strides, paddings.
#pragma once

#include <vector>

#include "engine/program/ops/check.hpp"

namespace harmonics::engine {

// Returns axes of operand `which` as a mask. Throws for axes that are out of range or duplicate.
std::vector<bool> expect_axes(Op op, std::span<const TensorType> inputs, const std::vector<int64_t>& axes,
                              const std::string& name, size_t which = 0);
// Returns the list attribute `name`, which must have `length` entries of at least `least`.
const std::vector<int64_t>& expect_list(Op op, std::span<const TensorType> inputs, const AttributeMap& attributes,
                                        const std::string& name, size_t length, int64_t least);
// Like checked_type(), but also checks the rank.
TensorType checked_type(Op op, std::span<const TensorType> inputs, DType dtype, const std::vector<int64_t>& dims);

std::string list_text(const std::vector<int64_t>& values);  // "[1, 2]"

}  // namespace harmonics::engine
