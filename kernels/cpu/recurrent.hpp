// LSTM and GRU from state to state: a part takes some samples through all positions.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

struct RecurrentContext {
  int64_t batch, positions, width;
  bool reverse;
  bool has_dcell;                // lstm gradient: the cell states have gradients of their own
  uint32_t pack_parts, parts;    // phases: weight into panels, then the scan
  int panel_vectors;             // gradients: 4 for few samples a part, else 2
  int64_t packed;                // floats of the weight in panels
  int64_t stride;                // floats between the samples' states
  int64_t gate_stride;           // gradients: between the samples' gates
  int64_t rows, part_workspace;  // most samples of a part, and its floats
};

}  // namespace harmonics::cpu
