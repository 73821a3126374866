#include "engine/program/ops/list_check.hpp"

#include <harmonics/quantity.hpp>

namespace harmonics::engine {

std::string list_text(const std::vector<int64_t>& values) {
  std::string s = "[";
  for (size_t i = 0; i < values.size(); ++i) s += (i ? ", " : "") + std::to_string(values[i]);
  return s + "]";
}

std::vector<bool> expect_axes(Op op, std::span<const TensorType> inputs, const std::vector<int64_t>& axes,
                              const std::string& name, size_t which) {
  std::vector<bool> mask(inputs[which].shape.rank());
  for (const int64_t axis : axes) {
    const auto a = static_cast<size_t>(expect_axis(op, inputs, axis, which));
    if (mask[a])
      misfit(op, ErrorKind::Shape, inputs,
             name + " = " + list_text(axes) + " names axis " + std::to_string(axis) + " twice");
    mask[a] = true;
  }
  return mask;
}

const std::vector<int64_t>& expect_list(Op op, std::span<const TensorType> inputs, const AttributeMap& attributes,
                                        const std::string& name, size_t length, int64_t least) {
  const std::vector<int64_t>& values = attributes.integers(name);
  if (values.size() != length)
    misfit(op, ErrorKind::Shape, inputs,
           name + " = " + list_text(values) + " must have " + quantity(length, "entry", "entries"));
  for (const int64_t v : values) {
    if (v < least)
      misfit(op, ErrorKind::Shape, inputs,
             name + " = " + list_text(values) + " must not hold a number below " + std::to_string(least));
  }
  return values;
}

TensorType checked_type(Op op, std::span<const TensorType> inputs, DType dtype, const std::vector<int64_t>& dims) {
  if (dims.size() > HX_MAX_RANK)
    misfit(op, ErrorKind::Shape, inputs, "the result " + list_text(dims) + " would have more than 8 dimensions");
  return checked_type(op, dtype, Shape(dims));
}

}  // namespace harmonics::engine
