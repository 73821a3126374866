// Copies between strided views, which other families also plan for their operands (families/layout.cpp).
#pragma once

#include <harmonics/abi.h>

#include "isa.hpp"

namespace harmonics::cpu {

// to[sum index * to_strides] = from[sum index * from_strides], strides in elements.
struct StridedView {
  uint32_t rank;
  int64_t dims[HX_MAX_RANK], from_strides[HX_MAX_RANK], to_strides[HX_MAX_RANK];
  int64_t from_offset, to_offset;
};

struct CopyContext {
  StridedView view;
  uint32_t element_bytes, from_buffer, to_buffer;
  uint32_t parts;  // divide the longest outer axis
  uint32_t split_axis;
  // Transposes tiles over this axis and the last one: one side is contiguous along each. -1: copies row by row.
  int32_t tile_axis;
  // pad: each part first fills its share of the `fill_count` elements of the result with `fill`. 0: no fill.
  int64_t fill_count;
  uint64_t fill;
};

}  // namespace harmonics::cpu

HM_VECTOR_CODE(strided_copy)
