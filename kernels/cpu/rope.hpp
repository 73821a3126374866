// Rotary positions.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

constexpr uint32_t kNoInput = ~0u;

// Cosines and sines of a position's pairs: [tables, entries] each. Interleaved pairs (2i, 2i + 1) have two entries, the
// sine of the first negated; pairs (i, i + entries) have one.
struct RopeContext {
  int64_t rows, width, entries;
  int64_t positions;   // of a sequence
  int64_t repeats;     // consecutive rows with the same position
  int64_t batch_rows;  // rows of an item of the first axis, where positions differ by item; 0: they do not
  int64_t tables;
  uint32_t parts;
  bool interleaved;
  const float *cosines, *sines;  // null: made from the positions, in the workspace
  // Positions known at run time.
  uint32_t positions_input, frequencies_input;  // kNoInput: not given
  uint32_t table_parts, y, workspace;           // buffers
  const double* frequencies;                    // by pair, unless they are an input
  double turn;                                  // -1: inverse
  int64_t offset;                               // of positions that are not given
};

}  // namespace harmonics::cpu
