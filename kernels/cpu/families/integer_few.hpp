// Products of few rows of x and block-quantised integer weights; the weight is unpacked in registers.
#pragma once

#include "integer_products.hpp"
#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {

// kWidth rows of a weight times x_rows rows of x.
struct FewIntegerRows {
  const char* packed;  // packed chunks in order; null: use `rows`
  const char* rows[kWidth];
  const IntegerChunk* x;
  int64_t x_rows, chunks;
  int64_t last_blocks;  // blocks of 32 in the last chunk
  const char* next;     // first row of the next group; null: none
  int64_t row_bytes;
  FetchDistances fetches;  // of packed chunks
};

// Writes [x_rows][kWidth] sums.
using MultiplyFew = void (*)(const FewIntegerRows& work, float* sums);

// Returns the function for this number of rows, or null. `vnni`: uses VNNI. `packed`: the weight is packed.
MultiplyFew few_integer_rows_of(uint32_t dtype, bool vnni, int64_t rows, bool packed);

}  // namespace harmonics::cpu::HM_ISA
