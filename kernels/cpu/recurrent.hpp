// LSTM and GRU scans: a part computes a share of the samples over all positions.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

struct RecurrentContext {
  int64_t batch, positions, width;
  bool reverse;
  bool has_dcell;                // lstm gradient: the gradient of the cell states is an input
  uint32_t pack_parts, parts;    // phases: pack the weight, scan
  int panel_vectors;             // gradients: vectors per panel; 4 for few samples per part, else 2
  int64_t packed;                // floats of the packed weight
  int64_t stride;                // floats between the states of samples
  int64_t gate_stride;           // gradients: floats between the gates of samples
  int64_t rows, part_workspace;  // largest number of samples of a part; floats of its workspace
};

}  // namespace harmonics::cpu
