// Products with fp16 operands: sums of 256 terms in fp16, of 32 at a time, totals in fp32. With AVX512-FP16 the peak
// rate is twice that of fp32; the error is below that of bf16 operands with exact sums.
#pragma once

#include "matmul.hpp"
#include "rounded_operand.hpp"

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

// Returns the words of a packed block of the depth.
[[gnu::always_inline]] static constexpr int64_t half_words_of_a(int64_t rows) {
  return (rows + kHalfRows - 1) / kHalfRows * kHalfStripOfA;
}
[[gnu::always_inline]] static constexpr int64_t half_words_of_b(int64_t columns) {
  return (columns + kHalfColumns - 1) / kHalfColumns * kHalfStripOfB;
}
[[gnu::always_inline]] static constexpr int64_t half_blocks(int64_t depth) {
  return (depth + kHalfDepth - 1) / kHalfDepth;
}

// C = A B or C += A B of one packed block of the depth.
struct HalfBlock {
  const uint32_t *a, *b;
  int64_t rows, columns, depth;
  float* c;
  int64_t c_row;
  bool add;
  bool by_rows;  // A
  // What is packed next, fetched meanwhile: `fetched_rows` rows of `fetched_lines` lines, if any.
  const char* fetched = nullptr;
  int64_t fetched_stride = 0, fetched_rows = 0, fetched_lines = 0;  // stride in bytes
};

// The order of summation depends only on the depth.
struct HalfRoutines {
  const char* name;
  void (*pack)(const RoundedOperand& x, uint32_t* to);  // one block of the depth
  void (*multiply)(const HalfBlock& x);
};

// Returns the native routines, or null. HARMONICS_FP16=emulated selects a slow emulation with the same rounding, for
// checking results on other processors; HARMONICS_FP16=off disables fp16 products.
const HalfRoutines* half_product();

// Packing of an operand over its whole depth: its size in words, the number of parts, and the work of one part.
int64_t half_words(int64_t count, int64_t depth, bool is_b);
uint32_t half_pack_parts(int64_t count, int64_t depth);
void pack_half_part(const HalfRoutines& routines, const RoundedOperand& x, uint32_t* to, uint32_t parts, uint32_t part);

namespace half {
extern const HalfRoutines native, emulated;
}

}  // namespace harmonics::cpu
