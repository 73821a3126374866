// Copies between strided views (transpose, broadcast, slice, reverse, concat, pad), and sources that only write.
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
  uint32_t parts;  // of the longest outer axis
  uint32_t split_axis;
  // Tiles over axes (a, b), where each side is contiguous along one; b is the last axis. -1: no tiles, row by row.
  int32_t tile_axis;
  // pad: the part first fills its share of the whole result, `fill_count` elements, with `fill`. 0: no fill.
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
