// Blocks of an optimizer's 8-bit moments (engine/functional/stored_moments.hpp).
#pragma once

#include <harmonics/tensor.hpp>

namespace harmonics::engine {

constexpr int64_t kMomentBlock = 16;  // a block has so many rows and columns

// Returns the shape of the scales, one per block, of a tensor with at least two axes. The tensor is treated as a matrix
// whose rows are its first axis.
inline Shape moment_scales(const Shape& shape) {
  const int64_t rows = shape[0], columns = rows > 0 ? shape.count() / rows : 0;
  return {(rows + kMomentBlock - 1) / kMomentBlock, (columns + kMomentBlock - 1) / kMomentBlock};
}

}  // namespace harmonics::engine
