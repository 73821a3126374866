// Gradients against central finite differences: traced functions are differentiated and compared, element by element,
// with differences of the immediate evaluation.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/tensor/value.hpp"

namespace harmonics::engine {

// Uniform in [low, high), reproducible by seed.
HTensor random_tensor(const Shape& shape, uint64_t seed, double low = -1, double high = 1, DType dtype = DType::F64);
// Returns i64 numbers in [0, below).
HTensor random_indices(const Shape& shape, uint64_t seed, int64_t below);

// Sum of all floating-point results with fixed weights; `only_first`: of the first result.
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

// Compares gradients of all inputs of type `wrt`. Throws errors of tracing and differentiation.
GradientComparison compare_gradient(const Composition& f, const std::vector<HTensor>& inputs,
                                    GradientTolerance tolerance = {}, DType wrt = DType::F64);

}  // namespace harmonics::engine
