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

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
