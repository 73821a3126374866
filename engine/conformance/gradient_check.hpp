// Gradients against central finite differences: what traces to a program is differentiated and compared, element by
// element, with the slope of the eager evaluation.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/tensor/value.hpp"

namespace harmonics {

// Uniform numbers in [low, high), the same for the same seed.
HTensor random_tensor(const Shape& shape, uint64_t seed, double low = -1, double high = 1, DType dtype = DType::F64);
// i64 in [0, below).
HTensor random_indices(const Shape& shape, uint64_t seed, int64_t below);

// All floating-point results, weighted by fixed numbers and summed; `only_first`: of the first one alone.
HTensor weighted_sum(const std::vector<HTensor>& results, bool only_first = false);

// Any function of tensors written with operations.
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
  double traced, eager;  // the value: all floating-point outputs, weighted by fixed numbers and summed
  int64_t compared = 0;  // elements
  std::vector<GradientMismatch> mismatches;
};

// With respect to every input of type `wrt`. Throws what tracing or differentiating throws.
GradientComparison compare_gradient(const Composition& f, const std::vector<HTensor>& inputs,
                                    GradientTolerance tolerance = {}, DType wrt = DType::F64);

}  // namespace harmonics
