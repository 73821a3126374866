// Reductions, scans and searches along axes.
#pragma once

#include <harmonics/abi.h>

namespace harmonics::cpu {

// Rows are joined in groups of so many, groups in blocks of so many: rounding errors of long sums stay small.
constexpr int64_t kReduceGroup = 32;

enum class Reduction : uint8_t { sum, maximum, minimum, product };

// [outer, rows, inner] -> [outer, chunks, inner]: rows are cut into `chunks` fixed pieces, each joined by itself.
struct ReduceStage {
  int64_t outer, rows, inner, chunks;
  uint32_t parts;
  uint32_t from, to;               // buffers
  int64_t from_offset, to_offset;  // elements, into the workspace
};

struct ReduceContext {
  Reduction reduction;
  uint32_t dtype;
  uint32_t stages;
  ReduceStage stage[HX_MAX_PHASES];
};

// One axis of `size` between `outer` and `inner`.
struct AxisContext {
  int64_t outer, size, inner;
  uint32_t dtype, parts;
  bool largest;
};

}  // namespace harmonics::cpu
