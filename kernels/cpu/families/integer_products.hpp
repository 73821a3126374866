// linear with a block-quantised integer weight and x quantised to q8_0 (attribute activation_type): byte products,
// summed exactly over each run of 16 or 32 elements.
#pragma once

#include <cstdint>

#include "../fetches.hpp"
#include "../matmul.hpp"

namespace harmonics::cpu {

// 256 elements of a row of x as q8_0, padded with zeros. A run is the 16 or 32 elements for which the weight has one
// scale, in the order in which the weight's type unpacks them.
struct IntegerChunk {
  float scales[16];    // by run
  int32_t starts[16];  // by run: -(sum of steps) * zero point of the weight, the initial value of the accumulator
  float sums[16];      // by run: scale * (sum of steps)
  int8_t steps[256];
};

// A constant weight is packed by groups of as many rows as a vector has lanes. A group is a sequence of chunks of 256
// elements along the depth, packed_chunk bytes each. The last row pads incomplete groups.
//
// Workspace: x as IntegerChunk [chunks of the depth][x_rows], padded by repeating the last row. Phases: quantise,
// multiply.
struct IntegerContext {
  Product product;  // C = A B^T, rows of b
  uint32_t dtype;   // of b
  int64_t row_bytes, x_rows;
  int64_t packed_chunk;  // 0: b is not packed
  bool vnni;             // uses VNNI dot products; results are the same without
  FetchDistances fetches;
  uint32_t quantise_parts, row_parts, column_parts;
};

constexpr int64_t kIntegerDepth = 256;
constexpr int64_t kPackedGroups = 8;   // groups per piece of the packed form
constexpr int64_t kIntegerRows = 128;  // rows of x that share the unpacked weight; their chunks fit the L2 cache
constexpr int64_t kIntegerColumnGranule = 32;

// Rounds few rows up to 1, 2, 4 or 8, the register blocks of the micro-kernel.
constexpr int64_t few_integer_rows(int64_t m) { return m > 8 ? m : m > 4 ? 8 : m > 2 ? 4 : m; }

}  // namespace harmonics::cpu
