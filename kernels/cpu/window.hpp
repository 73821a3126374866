// Sums and extremes of windows, one axis after the other.
#pragma once

#include <harmonics/abi.h>

#include "reduce.hpp"

namespace harmonics::cpu {

// [outer, size, inner] -> [outer, places, inner]: place p joins the elements p * stride - low + k * dilation, k <
// window, that exist.
struct WindowStage {
  int64_t outer, size, inner, places;
  int64_t window, stride, low, dilation;
  uint32_t parts;
  uint32_t from, to;               // buffers
  int64_t from_offset, to_offset;  // in the workspace, elements
};

struct WindowContext {
  Reduction reduction;
  uint32_t dtype, stages;
  WindowStage stage[HX_MAX_PHASES];
};

}  // namespace harmonics::cpu
