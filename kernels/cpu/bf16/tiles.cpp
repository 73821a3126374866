// Products in the tile registers of AMX. Called only if the operating system permits their use.
#include "pack.hpp"
#include "product.hpp"

namespace harmonics::cpu::bf16 {
namespace {

struct alignas(64) TileConfiguration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
const TileConfiguration kWholeTiles;

// Compiler barrier: the tile intrinsics of g++ 12 are not declared to access memory.
[[gnu::always_inline]] inline void settle_memory() { asm volatile("" ::: "memory"); }

struct Tiles {
  struct Scope {
    Scope() { _tile_loadconfig(&kWholeTiles); }
    ~Scope() { _tile_release(); }
  };

  // Tile registers 0 to 3: C, by rows; 4 and 5: A; 6 and 7: B.
  template <int kRows, int kColumns>
  static void run(const Square& s) {
    constexpr bool kBelow = kRows > 1, kBeside = kColumns > 1;
    const int64_t c_row = s.c_row * static_cast<int64_t>(sizeof(float));
    float* const below = s.c + kStrip * s.c_row;
    settle_memory();
    if (s.add) {
      _tile_loadd(0, s.c, c_row);
      if constexpr (kBeside) _tile_loadd(1, s.c + kStrip, c_row);
      if constexpr (kBelow) _tile_loadd(2, below, c_row);
      if constexpr (kBelow && kBeside) _tile_loadd(3, below + kStrip, c_row);
    } else {
      _tile_zero(0);
      if constexpr (kBeside) _tile_zero(1);
      if constexpr (kBelow) _tile_zero(2);
      if constexpr (kBelow && kBeside) _tile_zero(3);
    }
    const uint16_t *a = s.a, *b = s.b;
    for (int64_t t = 0; t < s.tiles; ++t, a += kTileNumbers, b += kTileNumbers) {
      _tile_loadd(6, b, 64);
      _tile_loadd(4, a, 64);
      if constexpr (kBeside) _tile_loadd(7, b + s.b_strip, 64);
      if constexpr (kBelow) _tile_loadd(5, a + s.a_strip, 64);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (kBeside) _tile_dpbf16ps(1, 4, 7);
      if constexpr (kBelow) _tile_dpbf16ps(2, 5, 6);
      if constexpr (kBelow && kBeside) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, s.c, c_row);
    if constexpr (kBeside) _tile_stored(1, s.c + kStrip, c_row);
    if constexpr (kBelow) _tile_stored(2, below, c_row);
    if constexpr (kBelow && kBeside) _tile_stored(3, below + kStrip, c_row);
    settle_memory();
  }
};

}  // namespace

constexpr RoundedRoutines tiles = routines("bf16 tiles", nullptr, pack_operand, multiply_block<Tiles>);

}  // namespace harmonics::cpu::bf16
