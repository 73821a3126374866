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

// Returns the value of a number in f16.
float widen_half(uint16_t x) {
  const int exponent = x >> 10 & 31, mantissa = x & 1023;
  const float sign = (x & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa != 0 ? __builtin_nanf("") : sign * __builtin_inff();
  const int significand = exponent == 0 ? mantissa : mantissa + 1024, power = exponent == 0 ? -24 : exponent - 25;
  return sign * __builtin_ldexpf(static_cast<float>(significand), power);
}
float number_at(const RoundedOperand& x, int64_t i) {
  if (x.type == StoredFloat::f32) return static_cast<const float*>(x.from)[i];
  const uint16_t number = static_cast<const uint16_t*>(x.from)[i];
  return x.type == StoredFloat::f16 ? widen_half(number) : widen(number);
}

int64_t place_in_tile(bool is_b, int64_t row, int64_t k) {
  return is_b ? k / 2 * kTileDepth + row * 2 + k % 2 : row * kTileDepth + k;
}

void pack_plainly(const RoundedOperand& x, uint32_t* words, int64_t strip_words) {
  auto* const to = reinterpret_cast<uint16_t*>(words);
  const int64_t strip = 2 * strip_words;
  for (int64_t i = 0; i < strips_of(x.count) * kStrip; ++i)
    for (int64_t k = 0; k < depth_tiles(x.depth) * kTileDepth; ++k)
      to[i / kStrip * strip + k / kTileDepth * kTileNumbers + place_in_tile(x.is_b, i % kStrip, k % kTileDepth)] =
          i < x.count && k < x.depth ? narrow(number_at(x, i * x.stride + k * x.depth_stride)) : uint16_t{0};
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

constexpr RoundedRoutines emulated = [] {
  RoundedRoutines r = routines("bf16, emulated", "sparse or bf16, emulated", pack_plainly, multiply_block<Emulated>);
  r.most_nonzeros = 0.25;  // as for dot products
  return r;
}();

}  // namespace harmonics::cpu::bf16
