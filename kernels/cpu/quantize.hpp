// Whole numbers of 8 to 32 bits in steps of a scale, from and to f32.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

// [outer, channels, inner]; each channel has a scale and a zero point.
struct QuantizeContext {
  int64_t outer, channels, inner;
  uint32_t dtype;  // of the whole numbers
  uint32_t parts;  // of outer * channels; of the elements if there is one channel
};

}  // namespace harmonics::cpu
