// Steps of plain gradient descent on an affine map's weight (the functional sgd_outer). Other optimizers change every
// row in every step and have kernels of their own (optimizer.hpp).
#pragma once

#include <cstdint>

namespace harmonics::cpu {

// w = w - rate a b^T for a single sample, and the gradient of a, computed with the old w.
struct OuterContext {
  enum Gradient { none, all, active };
  int64_t rows, columns;  // of w
  Gradient gradient;
  uint32_t parts;
};

}  // namespace harmonics::cpu
