// Normalisation over rows (layer_norm, rms_norm) and over batch and space (batch_norm).
#pragma once

#include <cstdint>

namespace harmonics::cpu {

struct NormContext {
  int64_t rows, columns;
  uint32_t parts;
  bool centred;           // layer_norm; else rms_norm
  uint32_t column_parts;  // gradient: of the second phase, which adds up the parts' sums
  float epsilon;
};

struct BatchNormContext {
  int64_t batch, channels, places;
  uint32_t parts;
  float epsilon;
};

}  // namespace harmonics::cpu
