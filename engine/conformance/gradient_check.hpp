// Compares gradients of traced functions, element by element, with central finite differences of immediate evaluations.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/tensor/value.hpp"

namespace harmonics::engine {

// Returns uniform random numbers in [low, high) that depend on the seed only.
HTensor random_tensor(const Shape& shape, uint64_t seed, double low = -1, double high = 1, DType dtype = DType::F64);
// Returns random i64 numbers in [0, below).
HTensor random_indices(const Shape& shape, uint64_t seed, int64_t below);

// Returns the sum of all elements of the floating-point results with fixed weights. `only_first`: only of the first
// such result. Throws ErrorKind::Type if there is none.
HTensor weighted_sum(const std::vector<HTensor>& results, bool only_first = false);

// A function of tensors written with operations.
using Composition = std::function<std::vector<HTensor>(const std::vector<HTensor>&)>;

struct GradientTolerance {
  double step = 1e-6, absolute = 1e-5, relative = 1e-3;
};

struct GradientMismatch {
  size_t input;
  int64_t element;
  double gradient, difference;
};

struct GradientComparison {
  double traced, eager;  // value of the weighted sum
  int64_t compared = 0;  // elements
  std::vector<GradientMismatch> mismatches;
};

// Compares the gradients of all inputs of type `wrt`. Throws the errors of tracing and differentiation.
GradientComparison compare_gradient(const Composition& f, const std::vector<HTensor>& inputs,
                                    GradientTolerance tolerance = {}, DType wrt = DType::F64);

}  // namespace harmonics::engine
