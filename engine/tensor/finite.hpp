// Are the numbers of a tensor finite? At the speed of reading them.
#pragma once

#include <cstdint>

#include "engine/tensor/type.hpp"

namespace harmonics {

// Index of the first element that is infinite or not a number; -1: there is none.
int64_t first_not_finite(DType dtype, const void* data, int64_t count);

// Of rows of so many elements: how many hold one that is infinite or not a number, and the first of them; -1: none.
struct BadRows {
  int64_t rows = 0, first = -1;
};
BadRows rows_not_finite(DType dtype, const void* data, int64_t rows, int64_t elements);

}  // namespace harmonics
