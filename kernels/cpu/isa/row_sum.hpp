// Row sums for normalisation.
#pragma once

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

HM_INLINE float scalar_sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

constexpr int64_t kRowGroup = 32 * kWidth;

// Calls f(offset, lanes, way) for the vectors of [begin, end). `way` cycles from 0 to 3: four accumulators hide the
// latency of addition.
template <typename F>
HM_INLINE void each_of_four(int64_t begin, int64_t end, F f) {
  int64_t i = begin;
  for (; i + 4 * kWidth <= end; i += 4 * kWidth) {
    f(i, kWidth, 0);
    f(i + kWidth, kWidth, 1);
    f(i + 2 * kWidth, kWidth, 2);
    f(i + 3 * kWidth, kWidth, 3);
  }
  for (; i < end; i += kWidth) f(i, lanes_at(i, end), 0);
}
HM_INLINE vf sum_of_ways(const vf (&ways)[4]) { return (ways[0] + ways[1]) + (ways[2] + ways[3]); }

// Returns the sum of f(offset, lanes) over a row. Sums are grouped to limit rounding errors of long rows. f must return
// 0 in missing lanes.
template <typename F>
HM_INLINE float sum_row(int64_t n, F f) {
  vf total{};
  for (int64_t g = 0; g < n; g += kRowGroup) {
    vf sum[4] = {};
    each_of_four(
        g, n - g < kRowGroup ? n : g + kRowGroup, [&](int64_t i, int64_t k, int way) __attribute__((always_inline)) {
          sum[way] += f(i, k);
        });
    total += sum_of_ways(sum);
  }
  return sum_of(total);
}

// Mean of squares minus square of the mean, at least 0; propagates infinity and NaN.
HM_INLINE vf variance_of(vf squares, vf mean) {
  const vf more = mean * mean;
  return choose(squares > 3.4028235e38f, squares, choose(squares < more, vf{}, squares - more));
}
HM_INLINE float variance_of(float squares, float mean) {
  const float more = mean * mean;
  return squares > 3.4028235e38f ? squares : squares < more ? 0.0f : squares - more;
}

// Statistics of values centred by a rounded mean; `share` is 1 / count, `rest` is the error of the mean. unit()
// normalises a centred value.
struct Spread {
  float rest, rstd, shift;

  HM_INLINE Spread(vf sum, vf squares, float share, float epsilon) : rest(sum_of(sum) * share) {
    rstd = 1.0f / scalar_sqrt(variance_of(sum_of(squares) * share, rest) + epsilon);
    shift = -rest * rstd;
  }
  HM_INLINE vf unit(vf centred) const { return fma(centred, splat(rstd), splat(shift)); }
};
template <typename F>
HM_INLINE Spread spread_of_row(int64_t n, float share, float epsilon, F f) {
  vf total{}, totals{};
  for (int64_t g = 0; g < n; g += kRowGroup) {
    vf sum[4] = {}, squares[4] = {};
    each_of_four(
        g, n - g < kRowGroup ? n : g + kRowGroup, [&](int64_t i, int64_t k, int way) __attribute__((always_inline)) {
          const vf d = f(i, k);
          sum[way] += d;
          squares[way] = fma(d, d, squares[way]);
        });
    total += sum_of_ways(sum);
    totals += sum_of_ways(squares);
  }
  return {total, totals, share, epsilon};
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
