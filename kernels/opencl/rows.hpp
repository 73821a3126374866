// Kernels that take a tensor row by row.
#pragma once

#include "families.hpp"

namespace harmonics::opencl {

// `statements` see: T, the type they compute in, which `head` defines; n, its columns; r, a row, and whether it is `inside`; start, its first element;
// EACH, a loop over the columns i that are this lane's; TOTAL(x) and LARGEST(x) over all lanes of the row;
// variant, a number of theirs.
Launch row_launch(Machine& machine, const std::string& head, const std::string& statements, const std::vector<uint32_t>& buffers, int64_t rows, int64_t columns,
                  uint32_t variant = 0);

// After `T`: the mean of squares less that of the numbers squared. The mean of large numbers is rounded as they are, so
// kernels take the mean of what it leaves as well.
inline constexpr const char* kVariance = R"(
T variance_of(T squares, T mean) {
  const T more = mean * mean;
  return isinf(squares) ? squares : squares < more ? 0 : squares - more;
}
)";

// Inputs, then outputs.
std::vector<uint32_t> all_buffers(const Site& site);

}  // namespace harmonics::opencl
