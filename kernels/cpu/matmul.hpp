// C[b] = A[b] B[b] with an epilogue of bias and activation: the common form of `dot` and `linear`. The k dimension is
// called depth.
#pragma once

#include <cstdint>
#include <vector>

#include "block.hpp"
#include "rounded_operand.hpp"

namespace harmonics::cpu {

struct ChainContext;

// Most buffers of a product.
constexpr uint32_t kMostBuffers = 24;

// Strides in elements: A(m, k) = a[m * a_row + k * a_column], B(k, n) = b[k * b_row + n * b_column]; C is dense.
struct Product {
  int64_t batch, m, n, k;
  int64_t a_row, a_column, b_row, b_column;
  uint32_t a, b, c, bias;  // buffers
  bool has_bias;
  int activation;
  bool accumulate = false;              // C += A B
  bool half = false;                    // may be computed in fp16 chunks
  bool invariant = false;               // the bits of a row must not depend on the number of rows
  bool descends = false;                // C = old - rate A B, the fused SGD update; packed products only
  uint32_t old = 0, rate = 0;           // buffers
  bool constant_b = false;              // B never changes, so it may be packed in advance
  bool cold_b = false;                  // each step reads B from beyond the second-level cache
  bool bf16 = false;                    // operands may be rounded to bf16
  const ChainContext* chain = nullptr;  // elementwise epilogue; only products that answer_finished_product() admits
  uint32_t extra = 0;                   // number of buffers from c + 3
  uint32_t sums = 0;  // buffer for the column sums of B; 0: none. Only if each part packs its own blocks
  StoredFloat b_type = StoredFloat::f32;  // 16-bit floats: only if is_rounded()
  float scale = 0;                        // not 0: A contains bytes, to be multiplied by it; only sparse products
};

struct MatmulContext {
  Product product;
  const int64_t *a_offsets, *b_offsets;  // by batch entry
  // Grid of parts: batches x row slices x column slices.
  uint32_t batch_parts, row_parts, column_parts;
};

// Returns the number of parts of the phase that adds two slices of the depth.
uint32_t parts_of_sum(const Product& p);

// Register block of the micro-kernel: rows of A by columns of B whose accumulators fill most vector registers (12 x 2
// of 32, 6 x 2 of 16).
constexpr int64_t packed_row_panel(int64_t vector) { return vector < 16 ? 6 : 12; }
constexpr int64_t packed_column_panel(int64_t vector) { return vector < 8 ? 16 : 2 * vector; }
// Block sizes for the L2 cache: 256 KiB of B and 132 KiB of A.
constexpr int64_t kPackedDepth = 256, kPackedRows = 132, kPackedColumns = 256;
// Largest depth of a block if B is streamed and a few rows of A stay in the L1 cache.
constexpr int64_t kRowsDepth = 512;
// Leading dimension of the copy of A if B is read in place. Not a power of two, so that rows map to different cache
// sets.
constexpr int64_t kRowsInPlaceStride = kPackedDepth + 16;

// Returns the begin of slice `i` of `slices`: whole granules, distributed evenly. kEvenGranule is for slices that whole
// panels would make uneven.
constexpr int64_t kRowGranule = 6, kColumnGranule = 8, kEvenGranule = 4;
[[gnu::always_inline]] static inline int64_t slice_begin(int64_t length, int64_t granule, uint32_t slices, uint32_t i) {
  const int64_t at = (length + granule - 1) / granule * i / slices * granule;
  return at < length ? at : length;
}

}  // namespace harmonics::cpu
