// Blocks of an optimizer's moments in 8 bits (engine/functional/stored_moments.hpp).
#pragma once

#include <harmonics/tensor.hpp>

namespace harmonics::engine {

constexpr int64_t kMomentBlock = 16;  // rows, and columns, of a block

// Shape of the scales of a tensor with at least two axes, taken as the matrix of its first axis by all others.
inline Shape moment_scales(const Shape& shape) {
  const int64_t rows = shape[0], columns = rows > 0 ? shape.count() / rows : 0;
  return {(rows + kMomentBlock - 1) / kMomentBlock, (columns + kMomentBlock - 1) / kMomentBlock};
}

}  // namespace harmonics::engine
