// Row-wise kernels.
#pragma once

#include "families.hpp"

namespace harmonics::opencl {

// Launches `statements` for each row. They may use: T, the arithmetic type defined by `head`; n, the number of columns;
// r, the row, and `inside`, whether it exists; start, its first element; EACH, a loop over this lane's columns i;
// TOTAL(x) and LARGEST(x) over all lanes of the row; variant, a parameter.
Launch row_launch(Machine& machine, const std::string& head, const std::string& statements,
                  const std::vector<uint32_t>& buffers, int64_t rows, int64_t columns, uint32_t variant = 0);

// Variance: mean of squares minus square of the mean. Requires `T`. The mean of large numbers is rounded, so kernels
// pass the mean of the centred values too.
inline constexpr const char* kVariance = R"(
T variance_of(T squares, T mean) {
  const T more = mean * mean;
  return isinf(squares) ? squares : squares < more ? 0 : squares - more;
}
)";

// Returns all buffers: inputs, then outputs.
std::vector<uint32_t> all_buffers(const Site& site);

}  // namespace harmonics::opencl
