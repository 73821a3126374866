// Column sums, for gradients of biases. Private to the including translation unit.
#pragma once

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Sums `rows` rows of `columns` columns. Four accumulators per column hide the latency of addition. `add`: adds to the
// numbers in `to`.
HM_INLINE void sum_columns(const float* x, int64_t row, int64_t rows, int64_t columns, float* to, bool add) {
  for (int64_t j = 0; j < columns; j += kWidth) {
    const int64_t n = lanes_at(j, columns);
    const auto at = [&](int64_t r) __attribute__((always_inline)) { return load_some(x + r * row + j, n); };
    vf sum[4] = {};
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sum[i] += at(r + i);
    }
    for (; r < rows; ++r) sum[0] += at(r);
    const vf all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    store_some(to + j, add ? load_some(to + j, n) + all : all, n);
  }
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
