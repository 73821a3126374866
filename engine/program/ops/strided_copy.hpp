// Copies elements between two strided views of the same shape. Used by all layout operations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <harmonics/tensor.hpp>

namespace harmonics::engine {

using Strides = std::array<int64_t, HX_MAX_RANK>;  // in elements, per axis; may be zero or negative

Strides row_major(const Shape& shape);

struct StridedCopy {
  Shape shape;
  const void* from = nullptr;
  Strides from_strides{};
  int64_t from_offset = 0;  // in elements
  void* to = nullptr;
  Strides to_strides{};
  int64_t to_offset = 0;
  size_t element_bytes = 0;  // 1, 2, 4 or 8

  void run() const;
};

}  // namespace harmonics::engine
