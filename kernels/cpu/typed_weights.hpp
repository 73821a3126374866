// linear with a weight of 16-bit floats or a stored type in the layout of its file, and embedding over stored types.
#pragma once

#include <cstdint>

#include "matmul.hpp"

namespace harmonics::cpu {

// `elements` whole blocks at `from` to f32.
using Decode = void (*)(const void* from, float* to, int64_t elements);

// The sum of each result is that of inner products: its order depends on the depth only.
struct TypedContext {
  Product product;  // a times the rows of b
  uint32_t dtype;   // of b
  int64_t row_bytes;
  Decode decode;  // for types without vector code
  uint32_t row_parts, column_parts;
  int64_t work_floats;  // of the workspace, for each part
};

// From this many rows of A on, chunks of the weight are decoded to memory, else in registers.
constexpr int64_t kChunkRows = 4;
// A chunk of a row: whole blocks of every type. Rows of b decoded together, rows of A that share them: the decoded
// chunks and those of a tile of A fit a first-level cache, the sums a second-level one.
constexpr int64_t kChunk = 256, kGroupColumns = 24, kBlockRows = 96;
constexpr int64_t kTypedColumnGranule = 8;

}  // namespace harmonics::cpu
