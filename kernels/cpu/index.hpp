// Gather, scatter, slices with run-time starts, and top-k.
#pragma once

#include <cstdint>

#include <harmonics/abi.h>

namespace harmonics::cpu {

// An axis of `size` rows of `inner` elements, `outer` times; `indices`: number of row indices.
struct IndexContext {
  int64_t outer, size, inner, indices;
  uint32_t index_dtype, element_bytes;
  uint32_t parts;                    // gather: parts of outer * indices
  uint32_t row_parts, column_parts;  // scatter_add: each part owns rows and columns of the result
  uint32_t x, ids, updates, y;       // buffers
  bool has_x;                        // scatter_add starts from x, else from 0
};

enum class ScatterKind : uint32_t { set, add, max, min };

// Batches of `rows` rows of `inner` elements. Each batch has `places` positions of k indices; a position selects a row.
struct PositionContext {
  int64_t batches, rows, inner, places;
  uint32_t k;
  int64_t sizes[HX_MAX_RANK];  // of the k indexed axes
  bool shared;                 // all batches have the same positions: scatter_add
  uint32_t index_dtype, dtype, element_bytes;
  ScatterKind kind;
  uint32_t parts;                    // gather_nd: parts of all positions
  uint32_t copy_parts;               // scatter_nd: phase that copies x, skipped in place
  uint32_t half;                     // scatter_nd: HX_F16 or HX_BF16 if accumulated in f32 in the workspace; else 0
  uint32_t row_parts, column_parts;  // scatter_nd: each part owns rows and columns of the result
};

// A block of a larger tensor of the same rank, copied as contiguous runs. Starts are clamped so that the block fits.
struct BlockCopyContext {
  uint32_t rank, run_axes;  // the first `run_axes` axes of the block index the runs
  int64_t sizes[HX_MAX_RANK], last_starts[HX_MAX_RANK];
  int64_t axis_bytes[HX_MAX_RANK];  // byte strides of the whole tensor
  int64_t runs, run_bytes;
  int64_t whole_bytes;
  uint32_t starts_dtype;
  uint32_t copy_parts, parts;  // copy_parts: update_slice's phase that copies the whole, skipped in place
  uint32_t starts;             // buffers
};

struct TopKContext {
  enum Type : uint32_t { f32, f16, bf16, f64 } type;
  int64_t rows, size, k;
  uint32_t parts;
};

}  // namespace harmonics::cpu
