// Native kernels for ungrouped convolutions over two spatial axes (a single axis is treated as a plane of height 1).
//
// They cover cases that are slow in oneDNN: few channels, and gradients through max pooling, which have one non-zero
// position per pooling window. Only non-zeros are multiplied.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

struct ConvContext {
  int64_t samples, channels, height, width, outputs, out_height, out_width;
  int64_t kernel[2], strides[2], low[2], dilation[2];
  int64_t depth;  // channels x kernel
  // Max pooling after the convolution: windows neither overlap nor cross an edge.
  bool pools;
  int64_t pool[2], pool_step[2], pooled_height, pooled_width;
  bool has_bias, relu;

  // Padded copy of x: planes of `rows` rows of `row` floats. Forward: columns are grouped by their remainder modulo the
  // stride, `phase` columns per group, so that adjacent results read adjacent inputs. `direct`: reads x in place.
  int64_t rows, row, phase, plane;
  bool direct;
  const int32_t* taps;     // [depth]: offsets of a window's elements from its first
  int64_t padded_outputs;  // rounded up to whole vectors
  int64_t band;            // result rows per band, computed together

  // Gradients: channels last, in blocks of `block`; `vectors`: vectors per window row of one block.
  int64_t block, blocks, vectors;
  bool gathers;           // input gradient: sorts gradients by position instead of adding window by window
  const int32_t* places;  // [out_height * out_width]: offset of each window in a block

  uint32_t parts, join_parts;
  int64_t packed, part_workspace;  // floats
  uint32_t workspace_buffer;
};

// Weight gradient: limit of ConvContext::vectors.
constexpr int64_t kMostSumVectors = 12;
// Gathering input gradient: limits of kernel columns, and of kernel columns times vectors of a block.
constexpr int64_t kMostSpreadColumns = 7, kMostSpread = 12;

}  // namespace harmonics::cpu
