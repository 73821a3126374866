// Products whose operands are halves: partial sums of 32 terms in fp16, totals in fp32. Twice the speed of fp32 on processors
// with AVX512-FP16, at half the error of bf16 operands with exact sums.
#pragma once

#include "matmul.hpp"

namespace harmonics::cpu {

// Terms summed in fp16. Operands are scaled by powers of two to magnitudes below 32, each row of A and each column of B for
// itself: a sum stays below 32 * 32 * 32, half of what fp16 holds.
constexpr int64_t kChunk = 32;
constexpr int64_t kHalfRows = 12, kHalfColumns = 64;  // of one tile of registers
// Blocks of packed operands. Every half of A is stored twice, as the pair that one 32-bit broadcast brings.
constexpr int64_t kHalfDepth = 256, kHalfBlockRows = 96, kHalfBlockColumns = 256;
static_assert(kHalfDepth % kChunk == 0 && kHalfBlockRows % kHalfRows == 0 && kHalfBlockColumns % kHalfColumns == 0);

// What one part packs and sums into.
struct alignas(64) HalfWorkspace {
  uint16_t b[kHalfDepth * kHalfBlockColumns];
  uint32_t a[kHalfDepth * kHalfBlockRows];
  float totals[kHalfRows * kHalfColumns];
  float column[kHalfDepth * kHalfColumns];  // one panel, before it is rounded
  int32_t a_exponents[kHalfBlockRows], b_exponents[kHalfBlockColumns];
};

// The rows [i0, i1) and columns [j0, j1) of C = A B, or of C += A B.
using HalfProduct = void (*)(const Product& p, const float* a, const float* b, float* c, int64_t i0, int64_t i1, int64_t j0,
                             int64_t j1, HalfWorkspace& workspace);

// This processor's, or with HARMONICS_FP16=emulated a slow one that rounds as such a processor would (for checking results
// elsewhere); null: this processor has none. HARMONICS_FP16=off hides it.
HalfProduct half_product();

namespace half {
void native(const Product& p, const float* a, const float* b, float* c, int64_t i0, int64_t i1, int64_t j0, int64_t j1,
            HalfWorkspace& workspace);
void emulated(const Product& p, const float* a, const float* b, float* c, int64_t i0, int64_t i1, int64_t j0, int64_t j1,
              HalfWorkspace& workspace);
}  // namespace half

}  // namespace harmonics::cpu
