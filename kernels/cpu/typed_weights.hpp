// linear with a weight of 16-bit floats or a stored type in the layout of its file, and embedding over stored types.
#pragma once

#include <cstdint>

#include "matmul.hpp"

namespace harmonics::cpu {

// The sum of each result is that of inner products: its order depends on the depth only.
struct TypedContext {
  Product product;  // a times the rows of b
  uint32_t dtype;   // of b
  int64_t row_bytes;
  uint32_t row_parts, column_parts;
  uint32_t round_parts;  // 0, or the parts of a first phase that rounds x to q8_0, into the workspace
  // b is [depth, columns]: panels of decoded rows add to the sums of a slice of columns, one after another.
  bool transposed;
  int64_t slice_bytes;  // of kDecodedColumns elements of a row of b
};

// Rows of a table, decoded.
struct TypedRowsContext {
  int64_t rows, size, width, row_bytes;  // rows are taken out of `size`
  uint32_t dtype, index_dtype, parts;
};

// Up to this many rows of A the weight is converted in registers.
constexpr int64_t kDirectRows = 12;
// More rows share decoded rows of the weight: kBlockRows rows of A times kTypedPanel decoded rows, kTypedDepth elements
// at a time. These, and the sums in vectors, fit a second-level cache; six rows of A and four of the weight fit a
// first-level cache.
constexpr int64_t kBlockRows = 96, kTypedPanel = 32, kTypedDepth = 1024;
constexpr int64_t kTypedColumnGranule = 8;
// Of a transposed product: columns and rows of b that are decoded at a time, whole blocks of every type.
constexpr int64_t kDecodedColumns = 256, kDecodedDepth = 128;

// Whether there are products with weights of the type.
bool multiplies_type(uint32_t dtype);

}  // namespace harmonics::cpu
