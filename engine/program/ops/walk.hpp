// Iteration over a tensor: row by row, or along one axis.
#pragma once

#include "engine/program/ops/strided_copy.hpp"

namespace harmonics::engine {

// A tensor viewed as [outer, size, inner] around one axis.
struct AxisView {
  int64_t outer, size, inner;
  AxisView(const Shape& shape, int64_t axis)
      : outer(shape.slice(0, static_cast<uint32_t>(axis)).count()),
        size(shape[static_cast<uint32_t>(axis)]),
        inner(shape.from(static_cast<uint32_t>(axis) + 1).count()) {}
};

// Calls row(number, offset) for every row of the last axis, in order. `number`: row-major index of its first element;
// `offset`: its offset by the strides. A scalar is one row of one element; an empty shape has no rows.
template <typename Row>
void for_each_row(const Shape& shape, const Strides& strides, Row&& row) {
  if (shape.count() == 0) return;
  const int64_t length = shape.rank() ? shape.back() : 1;
  std::array<int64_t, HX_MAX_RANK> index{};
  int64_t offset = 0;
  for (int64_t number = 0; number < shape.count(); number += length) {
    row(number, offset);
    for (uint32_t axis = shape.rank() ? shape.rank() - 1 : 0; axis-- > 0;) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace harmonics::engine
