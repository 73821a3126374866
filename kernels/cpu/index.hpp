// Gather, scatter, slices at positions known at run time, and the largest of a row.
#pragma once

#include <cstdint>

#include <harmonics/abi.h>

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

enum class ScatterKind : uint32_t { set, add, max, min };

// Batches of `rows` rows of `inner` elements; each has `places` positions of k numbers, which name a row.
struct PositionContext {
  int64_t batches, rows, inner, places;
  uint32_t k;
  int64_t sizes[HX_MAX_RANK];  // of the k indexed axes
  bool shared;                 // all batches have the same positions: scatter_add
  uint32_t index_dtype, dtype, element_bytes;
  ScatterKind kind;
  uint32_t parts;                    // gather_nd: parts of all positions
  uint32_t copy_parts;               // scatter_nd first copies x, unless the result has its memory
  uint32_t half;                     // scatter_nd: HX_F16, HX_BF16, or 0: joined in f32 in the workspace, rounded once
  uint32_t row_parts, column_parts;  // scatter_nd: each part owns rows and columns of the result
};

// A block inside a whole of the same rank, as contiguous runs; the starts are clamped so that it fits.
struct BlockCopyContext {
  uint32_t rank, run_axes;  // the first `run_axes` axes of the block choose a run
  int64_t sizes[HX_MAX_RANK], last_starts[HX_MAX_RANK];
  int64_t axis_bytes[HX_MAX_RANK];  // from one position to the next in the whole
  int64_t runs, run_bytes;
  int64_t whole_bytes;
  uint32_t starts_dtype;
  uint32_t copy_parts, parts;  // update_slice first copies the whole, unless the result has its memory
  uint32_t starts;             // buffers
};

struct TopKContext {
  enum Type : uint32_t { f32, f16, bf16, f64 } type;
  int64_t rows, size, k;
  uint32_t parts;
};

}  // namespace harmonics::cpu
