// SGD steps of an affine map's weight (the functional sgd_outer). Optimizers that change every row in every step have
// separate kernels (optimizer.hpp).
#pragma once

#include <cstdint>

namespace harmonics::cpu {

// w = w - rate a b^T for a single sample, and the gradient of a with respect to the old w.
struct OuterContext {
  enum Gradient { none, all, active };
  int64_t rows, columns;  // of w
  Gradient gradient;
  uint32_t parts;
};

}  // namespace harmonics::cpu
