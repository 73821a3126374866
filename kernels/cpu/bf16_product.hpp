// Products whose operands are rounded to bf16, with sums in f32: by the tile registers of AMX or the dot products of
// AVX512-BF16.
#pragma once

#include "matmul.hpp"

namespace harmonics::cpu {

// A packed operand is made of strips: 16 rows of A, or 16 columns of B, along the depth. A strip is made of tiles 32
// deep, of 16 rows of 64 bytes. A row of a tile holds 32 numbers of a row of A; or two numbers of each of 16 columns of
// B, one below the other. Strips and depth are filled up with zeros.
constexpr int64_t kStrip = 16, kTileDepth = 32, kTileNumbers = kStrip * kTileDepth;
[[gnu::always_inline]] static constexpr int64_t strips_of(int64_t n) { return (n + kStrip - 1) / kStrip; }
[[gnu::always_inline]] static constexpr int64_t depth_tiles(int64_t depth) {
  return (depth + kTileDepth - 1) / kTileDepth;
}

// Rows of A, or columns of B, with their strides in elements; one of the strides is 1.
struct Bf16Operand {
  const float* from;
  int64_t stride, depth_stride;
  int64_t count, depth;
  bool is_b;
};

// C = A B or C += A B, of packed operands; `a_strip` and `b_strip`: numbers of a strip.
struct Bf16Block {
  const uint16_t *a, *b;
  int64_t a_strip, b_strip;
  int64_t tiles;  // of the depth
  int64_t rows, columns;
  float* c;
  int64_t c_row;
  bool add;
};

// The order of each sum depends on the depth alone.
struct Bf16Routines {
  const char* name;
  void (*pack)(const Bf16Operand& x, uint16_t* to, int64_t strip);
  void (*multiply)(const Bf16Block& x);
};

// For this processor, or null. HARMONICS_BF16=emulated selects a slow emulation, to check results on other processors;
// `dots` does without tile registers, and `off` disables all.
const Bf16Routines* bf16_routines();

// A packed operand: its bytes, the parts that pack it, and one of them.
uint64_t bf16_bytes(int64_t count, int64_t depth);
uint32_t bf16_pack_parts(int64_t count, int64_t depth);
void pack_bf16_part(const Bf16Routines& routines, const Bf16Operand& x, uint16_t* to, uint32_t parts, uint32_t part);

namespace bf16 {
extern const Bf16Routines tiles, dots, emulated;
}

}  // namespace harmonics::cpu
