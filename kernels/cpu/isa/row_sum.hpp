// Sums over rows as normalisation takes them.
#pragma once

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

HM_INLINE float scalar_sqrt(float x) { return vsqrt(splat(x))[0]; }

// Sum of f(vector, lanes) over a row in groups, so that long rows keep their digits. f gives 0 in missing lanes.
template <typename F>
HM_INLINE float sum_row(int64_t n, F f) {
  constexpr int64_t kGroup = 32 * kWidth;
  vf total{};
  for (int64_t g = 0; g < n; g += kGroup) {
    const int64_t end = n - g < kGroup ? n : g + kGroup;
    vf sum{};
    for (int64_t i = g; i < end; i += kWidth) sum += f(i, lanes_at(i, end));
    total += sum;
  }
  return sum_of(total);
}

// The mean of squares less that of the numbers squared; infinite and NaN stay so.
HM_INLINE vf variance_of(vf squares, vf mean) {
  const vf more = mean * mean;
  return choose(squares > 3.4028235e38f, squares, choose(squares < more, vf{}, squares - more));
}

// Of numbers less their mean. The mean of large numbers is rounded as they are; `rest` is what that leaves of it.
struct Spread {
  float rest, variance;

  HM_INLINE Spread(vf sum, vf squares, int64_t n) : rest(sum_of(sum) / static_cast<float>(n)) {
    variance = variance_of(splat(sum_of(squares) / static_cast<float>(n)), splat(rest))[0];
  }
};
template <typename F>
HM_INLINE Spread spread_of_row(int64_t n, F f) {
  constexpr int64_t kGroup = 32 * kWidth;
  vf total{}, totals{};
  for (int64_t g = 0; g < n; g += kGroup) {
    const int64_t end = n - g < kGroup ? n : g + kGroup;
    vf sum{}, squares{};
    for (int64_t i = g; i < end; i += kWidth) {
      const vf d = f(i, lanes_at(i, end));
      sum += d;
      squares += d * d;
    }
    total += sum;
    totals += squares;
  }
  return {total, totals, n};
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
