// linear with a weight in blocks of whole numbers and x rounded to q8_0 (the attribute activation_type): products of
// bytes, added up exactly for each 16 or 32 elements.
#pragma once

#include <cstdint>

#include "matmul.hpp"

namespace harmonics::cpu {

// 256 elements of a row of x as q8_0, zeros behind its end. Runs are of 16 or 32 elements: those of the weight that
// share a step, in the order in which the type unpacks them.
struct IntegerChunk {
  float scales[16];    // by run
  int32_t starts[16];  // by run: minus the sum of the steps, times what the weight's indices begin from
  float sums[16];      // by run: scale times the sum of the steps
  int8_t steps[256];
};

// A constant weight is packed: for each group of so many rows as a vector has lanes, its chunks of 256 elements in
// order, packed_chunk bytes each. Rows behind the last repeat it.
//
// The workspace is x as [chunks of the depth][x_rows] of IntegerChunk; rows behind the last repeat it. Phases:
// quantise, multiply.
struct IntegerContext {
  Product product;  // a times the rows of b
  uint32_t dtype;   // of b
  int64_t row_bytes, x_rows;
  int64_t packed_chunk;  // 0: b is not packed
  bool vnni;             // the processor adds four products of bytes at once; the results are the same without
  uint32_t quantise_parts, row_parts, column_parts;
};

constexpr int64_t kIntegerDepth = 256;
constexpr int64_t kPackedGroups = 8;   // of a piece of the packed form
constexpr int64_t kIntegerRows = 128;  // rows that share the unpacked weight; their chunks fit a second-level cache
constexpr int64_t kIntegerColumnGranule = 32;

// Few rows are multiplied in registers, by code for 1, 2, 4 or 8 rows.
constexpr int64_t few_integer_rows(int64_t m) { return m > 8 ? m : m > 4 ? 8 : m > 2 ? 4 : m; }

}  // namespace harmonics::cpu
