// Fills a tensor with one number.
#pragma once

#include "engine/tensor/type.hpp"

namespace harmonics::engine {

// Fills `count` elements. Converts `value` like `cast`: truncates and saturates for integers.
void fill_elements(DType dtype, void* to, int64_t count, double value);

}  // namespace harmonics::engine
