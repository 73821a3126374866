// linear with a weight in blocks of whole numbers and x rounded to q8_0 (the attribute activation_type): products of
// bytes, added up exactly for each 16 or 32 elements.
#pragma once

#include <cstdint>

#include "matmul.hpp"

namespace harmonics::cpu {

// 256 elements of a row of x as q8_0, or the fewer at its end. Runs are of 16 or 32 elements: those of the weight that
// share a step.
struct IntegerChunk {
  float scales[8];     // by 32 elements
  int32_t starts[16];  // by run: minus the sum of the steps, times what the weight's indices begin from
  float sums[16];      // by run: scale times the sum of the steps
  int8_t steps[256];
};

// The workspace is x as [chunks of the depth][rows] of IntegerChunk. Phases: quantise, multiply.
struct IntegerContext {
  Product product;  // a times the rows of b
  uint32_t dtype;   // of b
  int64_t row_bytes;
  bool vnni;  // the processor adds four products of bytes at once; the results are the same without
  uint32_t quantise_parts, row_parts, column_parts;
};

constexpr int64_t kIntegerDepth = 256;
constexpr int64_t kIntegerRows = 128;  // rows that share the unpacked weight; their chunks fit a second-level cache
constexpr int64_t kIntegerColumnGranule = 32;

}  // namespace harmonics::cpu
