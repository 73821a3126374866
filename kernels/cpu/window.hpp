// Sums, maxima and minima of windows, one axis after the other.
#pragma once

#include <harmonics/abi.h>

#include "reduce.hpp"

namespace harmonics::cpu {

// [outer, size, inner] -> [outer, places, inner]: place p reduces the elements p * stride - low + k * dilation for k <
// window that are in range.
struct WindowStage {
  int64_t outer, size, inner, places;
  int64_t window, stride, low, dilation;
  uint32_t parts;
  uint32_t from, to;               // buffers
  int64_t from_offset, to_offset;  // in the workspace, elements
};

struct WindowContext {
  Reduction reduction;
  uint32_t dtype, stages;  // dtype: of the accumulation, f32 for 16-bit floats
  uint32_t half;           // HX_F16 or HX_BF16: a first phase widens x into the workspace, the last stage narrows; or 0
  int64_t count;           // of x
  uint32_t widen_parts;
  WindowStage stage[HX_MAX_PHASES];
};

// The gradient of a maximum or minimum: [planes, size ..., inner] with windows over the middle axes. A part owns planes
// and columns of `inner`.
struct WindowGradContext {
  uint32_t dtype, rank;
  int64_t planes, inner, plane, windows, taps;  // plane: elements of a plane per element of `inner`
  int64_t size[HX_MAX_RANK], places[HX_MAX_RANK], window[HX_MAX_RANK];
  int64_t stride[HX_MAX_RANK], low[HX_MAX_RANK], dilation[HX_MAX_RANK];
  uint32_t plane_parts, column_parts;
};
constexpr int64_t kWindowColumns = 256;  // columns of `inner` per pass

}  // namespace harmonics::cpu
