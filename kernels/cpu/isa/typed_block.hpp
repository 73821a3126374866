// Products with weights of 16-bit floats and stored types, for kernels of several families.
#pragma once

#include "../typed_weights.hpp"

namespace harmonics::cpu::HM_ISA {

// Computes a block of y: rows of a times `columns` rows of a weight.
void multiply_typed(const TypedContext& c, const float* a, const char* w, float* y, int64_t rows, int64_t columns);
void decode_typed(uint32_t dtype, const char* row, float* to, int64_t width);

}  // namespace harmonics::cpu::HM_ISA
