// Rules of reductions: type of the state, initial state, and combination of two states.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/program/ops/accumulator.hpp"

namespace harmonics::engine {

struct Sum {
  template <typename T>
  using State = Accumulator<T>;
  template <typename S>
  static S start() {
    return S(0);
  }
  template <typename S>
  static S join(S a, S b) {
    return a + b;
  }
};
struct Product {
  template <typename T>
  using State = Accumulator<T>;
  template <typename S>
  static S start() {
    return S(1);
  }
  template <typename S>
  static S join(S a, S b) {
    return a * b;
  }
};

template <typename S>
bool is_nan(S x) {
  if constexpr (std::is_floating_point_v<S>) return std::isnan(x);
  return false;
}
// Returns whether b replaces the earlier a: not on ties. NaN replaces numbers and is never replaced.
template <bool kLargest, typename S>
bool beats(S b, S a) {
  if (is_nan(a) || is_nan(b)) return !is_nan(a);
  return kLargest ? b > a : b < a;
}
template <bool kLargest>
struct Extreme {
  template <typename T>
  using State = Computed<T>;
  template <typename S>
  static S start() {
    using Limits = std::numeric_limits<S>;
    if constexpr (std::is_floating_point_v<S>) return kLargest ? -Limits::infinity() : Limits::infinity();
    return kLargest ? Limits::lowest() : Limits::max();
  }
  template <typename S>
  static S join(S a, S b) {
    return beats<kLargest>(b, a) ? b : a;
  }
};

}  // namespace harmonics::engine
