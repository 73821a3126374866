// fp8 E4M3 (OCP 8-bit floating point): four bits of exponent, three of fraction, no infinities.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace harmonics::cuda {

inline float e4m3_value(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  if ((bits & 0x7f) == 0x7f) return NAN;
  const float magnitude = exponent ? std::ldexp(1.0f + static_cast<float>(fraction) / 8, exponent - 7)
                                   : std::ldexp(static_cast<float>(fraction), -9);
  return bits & 0x80 ? -magnitude : magnitude;
}
// Rounds to nearest, ties to even, saturates at 448; by search.
inline uint8_t e4m3_bits(float x) {
  if (x != x) return 0x7f;
  const float magnitude = std::min(std::fabs(x), 448.0f);
  uint8_t best = 0;
  for (uint8_t b = 1; b < 0x7f; ++b) {
    const float here = std::fabs(e4m3_value(b) - magnitude), least = std::fabs(e4m3_value(best) - magnitude);
    if (here < least || (here == least && b % 2 == 0)) best = b;
  }
  return static_cast<uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

}  // namespace harmonics::cuda
