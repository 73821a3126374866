// Normalisation over rows (layer_norm, rms_norm), over batch and space (batch_norm), over groups of channels
// (group_norm).
#pragma once

#include <cstdint>

namespace harmonics::cpu {

struct NormContext {
  int64_t rows, columns;
  uint32_t parts;
  bool centred;           // layer_norm; else rms_norm
  uint32_t column_parts;  // gradient: parts of the second phase, which adds up the parts' sums
  float epsilon;
};

struct BatchNormContext {
  int64_t batch, channels, places;
  uint32_t parts;
  float epsilon;
};

struct GroupNormContext {
  int64_t batch, groups, channels, places;  // channels: per group
  uint32_t parts;
  uint32_t channel_parts;  // gradient: parts of the second phase, which adds up the samples' sums
  float epsilon;
};

}  // namespace harmonics::cpu
