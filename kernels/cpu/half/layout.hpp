// Products with fp16 operands: sums of 256 terms in fp16, of 32 at a time, totals in fp32. With AVX512-FP16 the peak
// rate is twice that of fp32; the error is below that of bf16 operands with exact sums.
#pragma once

#include "../rounded_product.hpp"

namespace harmonics::cpu {

// Terms that are summed one by one. Their sum is added to that of the chunks before, so that a term passes through at
// most 40 roundings of fp16 instead of 256.
constexpr int64_t kChunk = 32;
constexpr int64_t kHalfRows = 12, kHalfColumns = 64;  // register block of the micro-kernel
constexpr int64_t kHalfDepth = 256;                   // terms that share a scale: a block of the depth

// Rows of A and columns of B are scaled by powers of two to magnitudes below 2^limit, so that the sum of a block is at
// most 16 * 8 * 256, half the range of fp16.
constexpr int kHalfLimitOfA = 4, kHalfLimitOfB = 3;

// A packed operand consists of blocks of the depth; a block, of strips of 12 rows of A or 64 columns of B. A strip
// begins with the exponents that undo its scales, as floats. Then follow, for each term, the numbers of its columns in
// fp16. Those of A are stored twice, as the pair that a 32-bit broadcast loads, in the order of the operand: by rows if
// a row is contiguous, else by terms. Strips are padded with zeros. Sizes are in words of 32 bits, whole cache lines.
constexpr int64_t kHalfExponentsOfA = 16, kHalfExponentsOfB = kHalfColumns;
constexpr int64_t kHalfRowStride = kHalfDepth + 8;  // by rows; rows map to different sets of the L1 cache
constexpr int64_t kHalfTermStride = 16;             // by terms; a term is a line of the cache
constexpr int64_t kHalfStripOfA = kHalfExponentsOfA + kHalfTermStride * kHalfDepth,
                  kHalfStripOfB = kHalfExponentsOfB + kHalfColumns * kHalfDepth / 2;
static_assert(kHalfRows * kHalfRowStride <= kHalfTermStride * kHalfDepth);
static_assert(kHalfDepth % kChunk == 0 && kHalfStripOfA % 16 == 0 && kHalfStripOfB % 16 == 0);

constexpr int64_t kHalfOwnRows = 8 * kHalfRows, kHalfOwnColumns = 2 * kHalfColumns;  // fit the second-level cache
static_assert(kHalfOwnRows / kHalfRows * kHalfStripOfA <= kMostOwnWords);
static_assert(kHalfOwnColumns / kHalfColumns * kHalfStripOfB <= kMostOwnWords);

namespace half {
namespace {

// Every strip has the size of a whole block.
int64_t strip(bool is_b, int64_t) { return is_b ? kHalfStripOfB : kHalfStripOfA; }

constexpr RoundedRoutines routines(const char* name, const char* beside_zeros,
                                   void (*pack)(const RoundedOperand&, uint32_t*, int64_t),
                                   void (*multiply)(const RoundedBlock&)) {
  RoundedRoutines r{};
  r.name = name, r.name_beside_zeros = beside_zeros, r.name_of_update = "fp16 product and update";
  r.columns_along = "fp16 columns along/1", r.columns_across = "fp16 columns across/1";
  r.rate = 170;
  r.most_nonzeros = 0.3;
  r.rows = r.row_granule = kHalfRows, r.columns = r.column_granule = kHalfColumns, r.depth = kHalfDepth;
  r.own_rows = kHalfOwnRows, r.own_columns = kHalfOwnColumns;
  r.tile_rows = 48, r.most_update_depth = 1024;  // a larger depth is packed faster block by block
  r.strip = strip, r.pack = pack, r.multiply = multiply;
  return r;
}

}  // namespace
}  // namespace half
}  // namespace harmonics::cpu
