// Copies between strided views (transpose, broadcast, slice, reverse, concat, pad), and fill, iota, random.
#pragma once

#include <harmonics/abi.h>

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

struct ConcatContext {
  int64_t outer;
  int64_t row_bytes;  // of the result
  uint32_t n_inputs, parts;
  const int64_t* input_bytes;  // per outer row
};

struct FillContext {
  int64_t count;
  uint32_t parts, element_bytes, dtype;
  uint64_t bits;
  int64_t size, inner;  // iota: 0, 1 ... along an axis of `size` with stride `inner`
};

struct RandomContext {
  int64_t count;
  uint64_t stream;
  uint32_t parts;
};

}  // namespace harmonics::cpu
