// Convolutions over two spatial axes (one axis is a plane of height 1), in one group, by kernels of our own.
//
// They are made for what dense libraries do badly: few channels, and gradients that come through max pooling. The latter
// have one place per window that is not zero; only those are multiplied.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

struct ConvContext {
  int64_t samples, channels, height, width, outputs, out_height, out_width;
  int64_t kernel[2], strides[2], low[2], dilation[2];
  int64_t depth;  // channels x kernel
  // Max pooling after the convolution: windows that do not overlap and reach over no edge.
  bool pools;
  int64_t pool[2], pool_step[2], pooled_height, pooled_width;
  bool has_bias, relu;

  // x with its padding: planes of `rows` rows of `row` numbers. Forward, columns lie sorted by their remainder modulo the
  // stride, `phase` of each, so that neighbours of the result read neighbours; `direct`: x itself serves.
  int64_t rows, row, phase, plane;
  bool direct;
  const int32_t* taps;      // [depth]: where the numbers of a window lie, from its first
  int64_t padded_outputs;   // in whole vectors
  int64_t band;             // rows of the result looked at together

  // Gradients: channels lie last, `block` together. A row of a window in one block is so many vectors.
  int64_t block, blocks, vectors;
  bool gathers;           // of the input: slopes sorted by place, not added window by window
  const int32_t* places;  // [out_height * out_width]: where each window begins in a block

  uint32_t parts, join_parts;
  int64_t packed, part_workspace;  // numbers
  uint32_t workspace_buffer;
};

// Vectors in a row of a window that the gradient of the weight serves at most.
constexpr int64_t kMostSumVectors = 12;
// Columns of a kernel, and columns times vectors of a block, that the gathering gradient of the input holds.
constexpr int64_t kMostSpreadColumns = 7, kMostSpread = 12;

}  // namespace harmonics::cpu
