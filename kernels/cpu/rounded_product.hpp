// Products that round their operands to fp16 or bf16: what their routines share with the driver.
#pragma once

#include "matmul.hpp"
#include "rounded_operand.hpp"

namespace harmonics::cpu {

// A packed operand consists of blocks of the depth; a block, of strips of rows of A or columns of B. All strips of an
// operand have the same size, in words of 32 bits, whole cache lines. Strips are padded with zeros.

// C = A B or C += A B of one packed block of the depth.
struct RoundedBlock {
  const uint32_t *a, *b;
  int64_t a_strip, b_strip;  // words per strip
  int64_t rows, columns, depth;
  float* c;
  int64_t c_row;
  bool add;
  bool by_rows;  // rows of A were contiguous
  // What is packed next, fetched meanwhile: `fetched_rows` rows of `fetched_lines` lines, if any.
  const char* fetched = nullptr;
  int64_t fetched_stride = 0, fetched_rows = 0, fetched_lines = 0;  // stride in bytes
};

// The order of summation depends only on the depth.
struct RoundedRoutines {
  const char *name, *name_beside_zeros, *name_of_update;
  const char *columns_along, *columns_across;  // names of the packed layouts of B
  double rate;                                 // floating-point operations per nanosecond, for dividing into parts
  double most_nonzeros;                        // of A, as a share: above it, skipping zeros in f32 is slower; 0: always
  int64_t rows, columns, depth;                // of a strip of A, of a strip of B, of a block
  int64_t own_rows, own_columns;               // of the block of an operand that a part packs for itself
  int64_t row_granule, column_granule;         // of parts
  int64_t tile_rows, most_update_depth;        // of a tile of a gradient that is stepped at once
  int64_t (*strip)(bool is_b, int64_t depth);  // words of a strip of a block of this depth
  void (*pack)(const RoundedOperand& x, uint32_t* to, int64_t strip);  // one block of the depth
  void (*multiply)(const RoundedBlock& x);
};
constexpr int64_t kMostOwnWords = 33 * 1024;  // of a block that a part packs for itself

// Returns the routines for this processor, or null.
// HARMONICS_FP16=emulated selects a slow emulation with the same rounding, for checking results on other processors;
// HARMONICS_FP16=off disables fp16 products. HARMONICS_BF16 also knows `dots`, which avoids AMX tiles.
const RoundedRoutines* half_routines();
const RoundedRoutines* bf16_routines();

// Returns the routines that compute the product with rounded operands, or null if it stays in f32.
const RoundedRoutines* rounding_of(const Product& product);

// Packing of an operand over its whole depth: sizes in words, the number of parts, and the work of one part. Blocks of
// the depth follow each other.
int64_t rounded_strip(const RoundedRoutines& routines, int64_t depth, bool is_b);
int64_t rounded_block(const RoundedRoutines& routines, int64_t count, int64_t depth, bool is_b);
int64_t rounded_words(const RoundedRoutines& routines, int64_t count, int64_t depth, bool is_b);
uint32_t rounded_pack_parts(const RoundedRoutines& routines, int64_t count, int64_t depth, bool is_b);
void pack_rounded_part(const RoundedRoutines& routines, const RoundedOperand& x, uint32_t* to, uint32_t parts,
                       uint32_t part);

namespace half {
extern const RoundedRoutines native, emulated;
}
namespace bf16 {
extern const RoundedRoutines tiles, dots, emulated;
}

}  // namespace harmonics::cpu
