// Kernels that handle a tensor row by row.
#pragma once

#include "families.hpp"

namespace harmonics::opencl {

// Names that `statements` may use: T, the arithmetic type defined by `head`; n, columns; r, the row, and `inside`,
// whether it exists; start, its first element; EACH, a loop over this lane's columns i; TOTAL(x) and LARGEST(x) over
// all lanes of the row; variant, a parameter.
Launch row_launch(Machine& machine, const std::string& head, const std::string& statements,
                  const std::vector<uint32_t>& buffers, int64_t rows, int64_t columns, uint32_t variant = 0);

// Requires `T`. Mean of squares minus square of the mean. The mean of large numbers is rounded, so kernels also pass
// the mean of the centred values.
inline constexpr const char* kVariance = R"(
T variance_of(T squares, T mean) {
  const T more = mean * mean;
  return isinf(squares) ? squares : squares < more ? 0 : squares - more;
}
)";

// Inputs, then outputs.
std::vector<uint32_t> all_buffers(const Site& site);

}  // namespace harmonics::opencl
