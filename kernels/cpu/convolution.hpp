// Geometry of ungrouped convolutions over two spatial axes (a single axis is treated as a plane of height 1), for
// native kernels. They cover cases that are slow in oneDNN: few channels (families/convolution.cpp), and gradients
// through max pooling (families/pooled_gradients.cpp).
#pragma once

#include <cstdint>

#ifndef HM_ISA
#include "site.hpp"
#endif

namespace harmonics::cpu {

struct ConvGeometry {
  int64_t samples, channels, height, width, outputs, out_height, out_width;
  int64_t kernel[2], strides[2], low[2], dilation[2];
  int64_t depth;  // channels x kernel
  int64_t rows;   // of a padded plane of x
  int64_t pooled_height, pooled_width;
};

#ifndef HM_ISA

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t up_to(int64_t n, int64_t granule) { return ceil_div(n, granule) * granule; }

// Estimated nanoseconds of one vector FMA at full throughput.
constexpr double kVectorStep = 0.17;

// Reads sizes and window, not those of the pooling. False: grouped, or over more than two axes.
bool conv_geometry(const Site& site, const std::vector<int64_t>& x, const std::vector<int64_t>& weight,
                   ConvGeometry& c);

#endif

}  // namespace harmonics::cpu
