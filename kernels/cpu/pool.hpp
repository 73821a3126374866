// Pooling over one or two spatial axes; one axis is a plane of height 1.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

struct PoolContext {
  int64_t planes, height, width, out_height, out_width;
  int64_t kernel[2], strides[2], low[2], dilation[2];
  uint32_t parts, index_dtype;
  bool include_padding;
};

}  // namespace harmonics::cpu
