// Reductions, which other families do in stages of their kernels (families/reduce.cpp).
#pragma once

#include <harmonics/abi.h>

#include "isa.hpp"

namespace harmonics::cpu {

// Rows per group, and groups per block: hierarchical sums keep rounding errors of long sums small.
constexpr int64_t kReduceGroup = 32;

enum class Reduction : uint8_t { sum, maximum, minimum, product };

// [outer, rows, inner] -> [outer, chunks, inner]: rows are divided into `chunks` pieces, each reduced separately.
struct ReduceStage {
  int64_t outer, rows, inner, chunks;
  uint32_t parts;
  uint32_t from, to;               // buffers
  int64_t from_offset, to_offset;  // in the workspace, elements
};

struct ReduceContext {
  Reduction reduction;
  uint32_t dtype;
  uint32_t stages;
  ReduceStage stage[HX_MAX_PHASES];
};

}  // namespace harmonics::cpu

HM_VECTOR_CODE(reduce)
