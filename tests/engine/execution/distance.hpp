// How far results of different kernels are apart.
#pragma once

#include <algorithm>
#include <cmath>

#include "tests/engine/execution/compiled.hpp"

namespace harmonics::engine::testing {

// Returns the largest difference, relative to the larger of 1 and the expected value.
inline double distance(const HTensor& found, const HTensor& expected) {
  if (type_of(found) != type_of(expected)) return INFINITY;
  if (found.dtype() != DType::F32) return same_bits(found, expected) ? 0 : INFINITY;
  double most = 0;
  for (int64_t i = 0; i < found.size(); ++i) {
    const double x = found.data<float>()[i], y = expected.data<float>()[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double d = std::abs(x - y) / std::max(1.0, std::abs(y));
    most = std::isnan(d) ? INFINITY : std::max(most, d);
  }
  return most;
}

inline double distance(const Values& found, const Values& expected) {
  if (found.size() != expected.size()) return INFINITY;
  double most = 0;
  for (size_t i = 0; i < found.size(); ++i) most = std::max(most, distance(found[i], expected[i]));
  return most;
}

}  // namespace harmonics::engine::testing
