// Emulated products with operands rounded to bf16, for checking results on any processor.
#include "product.hpp"

namespace harmonics::cpu::bf16 {
namespace {

// Rounds to nearest, ties to even. Flushes subnormal numbers to zero, as the conversion instruction does.
uint16_t narrow(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const uint32_t exponent = bits & 0x7f800000u;
  if (exponent == 0) return static_cast<uint16_t>(bits >> 16 & 0x8000u);
  if (exponent == 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | ((bits & 0x7fffffu) != 0 ? 0x40u : 0u));
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
float widen(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

int64_t place_in_tile(bool is_b, int64_t row, int64_t k) {
  return is_b ? k / 2 * kTileDepth + row * 2 + k % 2 : row * kTileDepth + k;
}

void pack_plainly(const Bf16Operand& x, uint16_t* to, int64_t strip) {
  for (int64_t i = 0; i < strips_of(x.count) * kStrip; ++i)
    for (int64_t k = 0; k < depth_tiles(x.depth) * kTileDepth; ++k)
      to[i / kStrip * strip + k / kTileDepth * kTileNumbers + place_in_tile(x.is_b, i % kStrip, k % kTileDepth)] =
          i < x.count && k < x.depth ? narrow(x.from[i * x.stride + k * x.depth_stride]) : uint16_t{0};
}

struct Emulated {
  struct Scope {};

  template <int kRows, int kColumns>
  static void run(const Square& s) {
    constexpr int64_t kHeight = kRows * kStrip, kWidth = kColumns * kStrip;
    float sums[kHeight * kWidth], b[kWidth];
    for (int64_t i = 0; i < kHeight; ++i)
      for (int64_t j = 0; j < kWidth; ++j) sums[i * kWidth + j] = s.add ? s.c[i * s.c_row + j] : 0;
    for (int64_t k = 0; k < s.tiles * kTileDepth; ++k) {
      const int64_t tile = k / kTileDepth * kTileNumbers, in_tile = k % kTileDepth;
      for (int64_t j = 0; j < kWidth; ++j)
        b[j] = widen(s.b[j / kStrip * s.b_strip + tile + place_in_tile(true, j % kStrip, in_tile)]);
      for (int64_t i = 0; i < kHeight; ++i) {
        const float a = widen(s.a[i / kStrip * s.a_strip + tile + place_in_tile(false, i % kStrip, in_tile)]);
        for (int64_t j = 0; j < kWidth; ++j) sums[i * kWidth + j] += a * b[j];
      }
    }
    for (int64_t i = 0; i < kHeight; ++i)
      for (int64_t j = 0; j < kWidth; ++j) s.c[i * s.c_row + j] = sums[i * kWidth + j];
  }
};

}  // namespace

const Bf16Routines emulated{"bf16, emulated", pack_plainly, multiply_block<Emulated>};

}  // namespace harmonics::cpu::bf16
