// Gradients through max pooling: only the maximum of each window has a gradient, unless the activation cuts it off.
// Zeros are not multiplied.
#pragma once

#include "../convolution.hpp"
#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

HM_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

HM_INLINE bool has_gradient(float gradient) {
  int32_t bits;
  __builtin_memcpy(&bits, &gradient, sizeof bits);
  return (bits & 0x7fffffff) != 0;
}

// Lists offset and gradient of the windows of one plane with a non-zero gradient; returns their number.
[[maybe_unused]] int64_t list_gradients(const ConvContext& c, const int32_t* indices, const float* dy, int32_t* at,
                                        float* value) {
  const int64_t n = c.pooled_height * c.pooled_width;
  const uint32_t places = static_cast<uint32_t>(c.out_height * c.out_width);
  int64_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t place = static_cast<uint32_t>(indices[i]);
    const bool listed = (place < places) & has_gradient(dy[i]);
    at[found] = c.places[place < places ? place : 0];
    value[found] = dy[i];
    found += listed;
  }
  return found;
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
