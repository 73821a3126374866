// Finds infinite or NaN elements at memory bandwidth.
#pragma once

#include <cstdint>

#include "engine/tensor/type.hpp"

namespace harmonics::engine {

// Returns the index of the first infinite or NaN element; -1 if there is none.
int64_t first_not_finite(DType dtype, const void* data, int64_t count);

// Number of rows with an infinite or NaN element, and the index of the first; -1: none.
struct BadRows {
  int64_t rows = 0, first = -1;
};
BadRows rows_not_finite(DType dtype, const void* data, int64_t rows, int64_t elements);

}  // namespace harmonics::engine
