// Are the numbers of a tensor finite? At the speed of reading them.
#pragma once

#include <cstdint>

#include "engine/tensor/type.hpp"

namespace harmonics {

// Index of the first element that is infinite or not a number; -1: there is none.
int64_t first_not_finite(DType dtype, const void* data, int64_t count);

}  // namespace harmonics
