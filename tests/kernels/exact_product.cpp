// The slowest part of these tests: exact products row by row, compiled with optimisation.
#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {

std::vector<double> exact_product(const Side& a, const Side& b, int64_t m, int64_t n, int64_t k) {
  std::vector<double> c(static_cast<size_t>(m * n), 0), rows(static_cast<size_t>(k * n));
  const float *left = a.matrix.data<float>(), *right = b.matrix.data<float>();
  for (int64_t d = 0; d < k; ++d)
    for (int64_t j = 0; j < n; ++j) rows[static_cast<size_t>(d * n + j)] = right[b.lies ? j * k + d : d * n + j];
  for (int64_t i = 0; i < m; ++i) {
    double* __restrict sum = c.data() + i * n;
    for (int64_t d = 0; d < k; ++d) {
      const double x = left[a.lies ? d * m + i : i * k + d];
      if (x == 0) continue;  // operands are finite
      const double* __restrict row = rows.data() + d * n;
      for (int64_t j = 0; j < n; ++j) sum[j] += x * row[j];
    }
  }
  return c;
}

}  // namespace harmonics::engine::kernel_tests
