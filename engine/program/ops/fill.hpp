// One number in every element.
#pragma once

#include "engine/tensor/type.hpp"

namespace harmonics {

// Converted as `cast` does: whole numbers are cut and held to their range.
void fill_elements(DType dtype, void* to, int64_t count, double value);

}  // namespace harmonics
