// Products with fp16 operands: partial sums of 32 terms in fp16, totals in fp32. With AVX512-FP16 the peak rate is
// twice that of fp32; the error is half that of bf16 operands with exact sums.
#pragma once

#include "matmul.hpp"

namespace harmonics::cpu {

// Terms per fp16 partial sum. Rows of A and columns of B are scaled by powers of two to magnitudes below 32, so that a
// partial sum stays below 32 * 32 * 32, half the range of fp16.
constexpr int64_t kChunk = 32;
constexpr int64_t kHalfRows = 12, kHalfColumns = 64;  // register block of the micro-kernel
// Blocks of packed operands. Each fp16 of A is stored twice, as the pair that a 32-bit broadcast loads.
constexpr int64_t kHalfDepth = 256, kHalfBlockRows = 96, kHalfBlockColumns = 256;
static_assert(kHalfDepth % kChunk == 0 && kHalfBlockRows % kHalfRows == 0 && kHalfBlockColumns % kHalfColumns == 0);

// Packed operands and partial sums of one part.
struct alignas(64) HalfWorkspace {
  uint16_t b[kHalfDepth * kHalfBlockColumns];
  uint32_t a[kHalfDepth * kHalfBlockRows];
  float totals[kHalfRows * kHalfColumns];
  float column[kHalfDepth * kHalfColumns];  // one panel, before rounding
  int32_t a_exponents[kHalfBlockRows], b_exponents[kHalfBlockColumns];
};

// Computes rows [i0, i1) and columns [j0, j1) of C = A B or C += A B.
using HalfProduct = void (*)(const Product& p, const float* a, const float* b, float* c, int64_t i0, int64_t i1,
                             int64_t j0, int64_t j1, HalfWorkspace& workspace);

// Returns the native product, or null. HARMONICS_FP16=emulated selects a slow emulation with the same rounding, for
// checking results on other processors; HARMONICS_FP16=off disables fp16 products.
HalfProduct half_product();

namespace half {
void native(const Product& p, const float* a, const float* b, float* c, int64_t i0, int64_t i1, int64_t j0, int64_t j1,
            HalfWorkspace& workspace);
void emulated(const Product& p, const float* a, const float* b, float* c, int64_t i0, int64_t i1, int64_t j0,
              int64_t j1, HalfWorkspace& workspace);
}  // namespace half

}  // namespace harmonics::cpu
