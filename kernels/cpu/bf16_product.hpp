// Products with operands rounded to bf16 and f32 accumulators, by AMX tiles or the dot products of AVX512-BF16.
#pragma once

#include "matmul.hpp"
#include "rounded_operand.hpp"

namespace harmonics::cpu {

// A packed operand consists of strips (panels) of 16 rows of A or 16 columns of B over the whole depth (k). A strip
// consists of tiles of 32 along k: 16 rows of 64 bytes. A tile row is 32 numbers of a row of A, or two consecutive k of
// 16 columns of B, interleaved. Strips and depth are padded with zeros.
constexpr int64_t kStrip = 16, kTileDepth = 32, kTileNumbers = kStrip * kTileDepth;
[[gnu::always_inline]] static constexpr int64_t strips_of(int64_t n) { return (n + kStrip - 1) / kStrip; }
[[gnu::always_inline]] static constexpr int64_t depth_tiles(int64_t depth) {
  return (depth + kTileDepth - 1) / kTileDepth;
}

// C = A B or C += A B of packed operands; `a_strip` and `b_strip`: numbers per strip.
struct Bf16Block {
  const uint16_t *a, *b;
  int64_t a_strip, b_strip;
  int64_t tiles;  // along the depth
  int64_t rows, columns;
  float* c;
  int64_t c_row;
  bool add;
};

// The order of summation depends only on the depth.
struct Bf16Routines {
  const char* name;
  void (*pack)(const RoundedOperand& x, uint16_t* to, int64_t strip);
  void (*multiply)(const Bf16Block& x);
};

// Returns the routines for this processor, or null. HARMONICS_BF16=emulated selects a slow emulation for checking
// results on other processors, `dots` avoids AMX tiles, `off` disables bf16 products.
const Bf16Routines* bf16_routines();

// Packing of an operand: its size in bytes, the number of parts, and the work of one part.
uint64_t bf16_bytes(int64_t count, int64_t depth);
uint32_t bf16_pack_parts(int64_t count, int64_t depth);
void pack_bf16_part(const Bf16Routines& routines, const RoundedOperand& x, uint16_t* to, uint32_t parts, uint32_t part);

namespace bf16 {
extern const Bf16Routines tiles, dots, emulated;
}

}  // namespace harmonics::cpu
