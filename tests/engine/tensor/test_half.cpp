// IEEE 754 binary16 and bfloat16: exhaustive properties and known bit patterns.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "engine/tensor/half.hpp"

using namespace harmonics;
using namespace harmonics::engine;

TEST_CASE("every 16-bit float survives the way through float") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto b = static_cast<uint16_t>(bits);
    const float h = half_to_float(b), f = bfloat_to_float(b);
    if (std::isnan(h) ? !std::isnan(half_to_float(float_to_half(h))) : float_to_half(h) != b) FAIL("half " << bits);
    if (std::isnan(f) ? !std::isnan(bfloat_to_float(float_to_bfloat(f))) : float_to_bfloat(f) != b)
      FAIL("bfloat16 " << bits);
  }
}

TEST_CASE("floats round to the nearest half, ties to even") {
  // Between adjacent values: below, at and above the midpoint.
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = half_to_float(static_cast<uint16_t>(bits)), high = half_to_float(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    const uint16_t even = static_cast<uint16_t>(bits % 2 ? bits + 1 : bits);
    if (float_to_half(middle) != even) FAIL("tie above " << bits);
    if (float_to_half(std::nextafter(middle, 0.0f)) != bits) FAIL("below the middle above " << bits);
    if (float_to_half(std::nextafter(middle, 1e9f)) != bits + 1) FAIL("above the middle above " << bits);
  }
  CHECK(float_to_half(65504.0f) == 0x7bff);
  CHECK(float_to_half(65519.0f) == 0x7bff);
  CHECK(float_to_half(65520.0f) == 0x7c00);
  CHECK(float_to_half(-std::numeric_limits<float>::infinity()) == 0xfc00);
  CHECK(float_to_half(1.0f) == 0x3c00);
  CHECK(float_to_half(-0.0f) == 0x8000);
  CHECK(float_to_half(1e-9f) == 0);
}

TEST_CASE("floats round to the nearest bfloat16, ties to even") {
  CHECK(float_to_bfloat(1.0f) == 0x3f80);
  CHECK(float_to_bfloat(1.0f + 0x1p-8f) == 0x3f80);
  CHECK(float_to_bfloat(1.0f + 0x1p-8f + 0x1p-20f) == 0x3f81);
  CHECK(float_to_bfloat(1.0f + 0x1p-7f + 0x1p-8f) == 0x3f82);
  CHECK(float_to_bfloat(std::numeric_limits<float>::max()) == 0x7f80);
}
