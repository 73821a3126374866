// linear with a weight of 16-bit floats or a stored type, in the file's layout, and embedding over stored types.
#pragma once

#include <cstdint>

#include "matmul.hpp"

namespace harmonics::cpu {

// Each result is an inner product whose order of summation depends only on the depth, and on in_panels.
struct TypedContext {
  Product product;  // C = A B^T, rows of b
  uint32_t dtype;   // of b
  int64_t row_bytes;
  uint32_t row_parts, column_parts;
  uint32_t round_parts;  // parts of a first phase that quantises x to q8_0, into the workspace; 0: none
  uint32_t copy_parts;   // parts of a first phase that copies x into the workspace, by tiles of rows; 0: none
  bool transposed;       // b is [depth, columns]
  bool in_order;         // a single row of A is multiplied by one row of b after the other
  bool in_panels;        // panels of decoded elements, each multiplied by all rows of A; always if transposed
  int64_t slice_bytes;   // in panels: bytes of kDecodedColumns elements of a row of b
};

// Up to this many rows of A the weight is converted in registers.
constexpr int64_t kDirectRows = 12;
// More rows share decoded rows of the weight. A block is kBlockRows rows of A, kTypedPanel decoded rows and kTypedDepth
// elements of each. The block and its accumulators fit the L2 cache; six rows of A and four of the weight fit L1.
constexpr int64_t kBlockRows = 96, kTypedPanel = 32, kTypedDepth = 1024;
constexpr int64_t kTypedColumnGranule = 8;
// Smaller weights may belong to a model that fits the caches, where four rows at once are 1.3 times as fast.
constexpr int64_t kLeastInOrder = 3 << 19;  // bytes
// With AVX-512, up to this many rows of A are multiplied by weights of 16-bit floats in tiles of rows that convert the
// weight in registers.
constexpr int64_t kMostTiledRows = 32;
// In panels: columns and depth decoded at a time, whole blocks of every type. Parts with fewer rows of A would decode b
// for too few products.
constexpr int64_t kDecodedColumns = 256, kDecodedDepth = 256, kLeastDecodedRows = 128;
static_assert(kDecodedColumns == kDecodedDepth);

// Returns whether a single row of A multiplies rows of such a weight one after the other.
bool multiplies_in_order(uint32_t dtype, int64_t bytes);
// Returns whether products support weights of the type.
bool multiplies_type(uint32_t dtype);

}  // namespace harmonics::cpu

#ifdef HM_ISA
namespace harmonics::cpu::HM_ISA {
// Computes a block of y: rows of a times `columns` rows of a weight.
void multiply_typed(const TypedContext& c, const float* a, const char* w, float* y, int64_t rows, int64_t columns);
void decode_typed(uint32_t dtype, const char* row, float* to, int64_t width);
}  // namespace harmonics::cpu::HM_ISA
#endif
