// Few rows of x times weights in blocks of whole numbers: indices go from the weight into products in registers.
#pragma once

#include "../integer_products.hpp"

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {

// kWidth rows of a weight times x_rows rows of x.
struct FewIntegerRows {
  const char* packed;  // their chunks in order; null: `rows`
  const char* rows[kWidth];
  const IntegerChunk* x;
  int64_t x_rows, chunks;
  int64_t last_blocks;  // blocks of 32 in the last chunk
  const char* next;     // the first of the rows multiplied next; null: none
  int64_t row_bytes;
};

// Writes [x_rows][kWidth] sums.
using MultiplyFew = void (*)(const FewIntegerRows& work, float* sums);

// Null: there is no code for so many rows. With vnni, the processor adds four products at once. `packed`: of a packed
// weight.
MultiplyFew few_integer_rows_of(uint32_t dtype, bool vnni, int64_t rows, bool packed);

}  // namespace harmonics::cpu::HM_ISA
