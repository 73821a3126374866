// Gather, scatter and rotary positions.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

// An axis of `size` rows of `inner` elements, `outer` times; `indices` row numbers.
struct IndexContext {
  int64_t outer, size, inner, indices;
  uint32_t index_dtype, element_bytes;
  uint32_t parts;                    // gather: parts of outer * indices
  uint32_t row_parts, column_parts;  // scatter_add: each part owns rows and columns of the result
  uint32_t x, ids, updates, y;       // buffers
  bool has_x;                        // scatter_add starts from x, else from 0
};

struct RopeContext {
  int64_t rows, positions, half;
  int64_t repeats;  // consecutive rows with the same position
  uint32_t parts;
  const float *cosines, *sines;  // [positions, half]
};

}  // namespace harmonics::cpu
