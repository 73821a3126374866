// C[b] = A[b] B[b], then bias and activation: what `dot` and `linear` come down to.
#pragma once

#include <cstdint>
#include <vector>

#include "block.hpp"

namespace harmonics::cpu {

// Strides in elements: A(m, k) = a[m * a_row + k * a_column], B(k, n) = b[k * b_row + n * b_column]; C is dense.
struct Product {
  int64_t batch, m, n, k;
  int64_t a_row, a_column, b_row, b_column;
  uint32_t a, b, c, bias;  // buffers
  bool has_bias;
  int activation;
  bool accumulate = false;  // C += A B
  bool half = false;        // may be computed in fp16 chunks
  bool descends = false;    // C = old - rate A B; only packed products do
  uint32_t old = 0, rate = 0;  // buffers
  float scale = 0;          // not 0: A holds bytes, each times this; only products that look for zeros read them
};

struct MatmulContext {
  Product product;
  const int64_t *a_offsets, *b_offsets;  // of each batch entry
  // The grid of parts: batches x row slices x column slices.
  uint32_t batch_parts, row_parts, column_parts;
};

// A product by packed panels. One phase packs what several parts read, one multiplies, one adds up what slices of the depth came to.
struct PackedContext : MatmulContext {
  uint32_t depth_parts = 1;     // slices of the depth: the first is summed in C, each other behind what is packed
  uint32_t sum_parts = 0;       // slices of rows in which they are added
  bool packs_a = false;       // A's rows are no runs of memory; all of A lies packed at the start of the workspace
  bool shares_b = false;      // all of B lies packed behind it; else every part packs the block it works on
  uint32_t pack_parts = 0;      // of phase 0, each of both operands
  int64_t a_floats = 0, b_floats = 0;
  int64_t block_columns = 0;    // of B that are packed, or worked on, at a time
  int64_t b_part_floats = 0;    // of a part's own block
};

// A product whose operands both lie depth by depth. Workspace, for each part of the grid: a panel of the columns that fill none.
struct DeepContext {
  Product product;
  uint32_t row_parts = 1, column_parts = 1;
};

// In how many slices of rows the sums of two halves of the depth are added.
uint32_t parts_of_sum(const Product& p);

// Panels: rows of A and columns of B whose sums fill most registers (12 x 2 of 32, 6 x 2 of 16), so that a tile does much between its beginning and its end.
constexpr int64_t packed_row_panel(int64_t vector) { return vector < 16 ? 6 : 12; }
constexpr int64_t packed_column_panel(int64_t vector) { return vector < 8 ? 16 : 2 * vector; }
// Blocks that the second-level cache holds: B's 256 KiB and A's 132 KiB.
constexpr int64_t kPackedDepth = 256, kPackedRows = 132, kPackedColumns = 256;

// Where slice `i` of `slices` begins: whole granules, spread evenly. The even one is for slices that whole panels would make uneven.
constexpr int64_t kRowGranule = 6, kColumnGranule = 8, kEvenGranule = 4;
[[gnu::always_inline]] static inline int64_t slice_begin(int64_t length, int64_t granule, uint32_t slices, uint32_t i) {
  const int64_t at = (length + granule - 1) / granule * i / slices * granule;
  return at < length ? at : length;
}

}  // namespace harmonics::cpu
