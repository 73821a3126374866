// Products with operands rounded to bf16 and f32 accumulators, by AMX tiles or the dot products of AVX512-BF16.
#pragma once

#include "../rounded_product.hpp"

namespace harmonics::cpu::bf16 {

// A strip has 16 rows of A or 16 columns of B. It consists of tiles of 32 along the depth (k): 16 rows of 64 bytes. A
// tile row is 32 numbers of a row of A, or two consecutive k of 16 columns of B, interleaved.
constexpr int64_t kStrip = 16, kTileDepth = 32, kTileNumbers = kStrip * kTileDepth, kTileWords = kTileNumbers / 2;
[[gnu::always_inline]] static constexpr int64_t strips_of(int64_t n) { return (n + kStrip - 1) / kStrip; }
[[gnu::always_inline]] static constexpr int64_t depth_tiles(int64_t depth) {
  return (depth + kTileDepth - 1) / kTileDepth;
}

namespace {

int64_t strip_words(bool, int64_t depth) { return depth_tiles(depth) * kTileWords; }

constexpr RoundedRoutines routines(const char* name, const char* beside_zeros,
                                   void (*pack)(const RoundedOperand&, uint32_t*, int64_t),
                                   void (*multiply)(const RoundedBlock&)) {
  RoundedRoutines r{};
  r.name = name, r.name_beside_zeros = beside_zeros, r.name_of_update = "bf16 product and update";
  r.columns_along = "bf16 columns along/1", r.columns_across = "bf16 columns across/1";
  r.rate = 600;
  r.most_nonzeros = 0;
  r.rows = r.columns = kStrip, r.depth = 512;
  r.own_rows = r.own_columns = 64;  // half of the L1 cache
  r.row_granule = r.column_granule = 2 * kStrip;
  r.tile_rows = 32, r.most_update_depth = INT64_MAX;
  r.strip = strip_words, r.pack = pack, r.multiply = multiply;
  return r;
}

}  // namespace
}  // namespace harmonics::cpu::bf16
