// Block types of GGUF: decoders, and encoders by a fixed rule. Encoders that search for scales: element_search.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <harmonics/element_bits.hpp>

namespace harmonics {

namespace detail {

HARMONICS_FACE inline uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
HARMONICS_FACE inline void store_u16(uint8_t* p, uint16_t v) {
  p[0] = static_cast<uint8_t>(v);
  p[1] = static_cast<uint8_t>(v >> 8);
}

// If a block contains an infinity or NaN, writes a block that decodes to NaN and returns true. `at`: offset of the
// scale.
HARMONICS_FACE inline bool refuse_block(const float* from, int n, uint8_t* block, uint32_t bytes, uint32_t at = 0) {
  for (int i = 0; i < n; ++i) {
    if (std::isfinite(from[i])) continue;
    std::memset(block, 0, bytes);
    store_u16(block + at, 0x7e00u);
    return true;
  }
  return false;
}

// Returns the element of largest magnitude, the first of several.
HARMONICS_FACE inline float largest_of(const float* from, int n) {
  float most = 0;
  for (int i = 0; i < n; ++i)
    if (std::fabs(from[i]) > std::fabs(most)) most = from[i];
  return most;
}

// Returns 1 / scale, or 0 if that is not finite: an f16 scale is then 0, and indices of infinities and NaN cannot be.
HARMONICS_FACE inline float inverse_of(float scale) {
  const float inverse = 1 / scale;
  return std::isfinite(inverse) ? inverse : 0;
}

// Returns the integer part of x * inverse + offset, clamped to [0, top]. Rounds twice, never by a fused multiply-add.
HARMONICS_FACE inline int index_of(float x, float inverse, double offset, int top) {
  const auto steps = static_cast<float>(static_cast<double>(x) * static_cast<double>(inverse));
  const auto moved = static_cast<float>(static_cast<double>(steps) + offset);
  return !(moved > 0) ? 0 : moved > static_cast<float>(top) ? top : static_cast<int>(moved);  // NaN: 0
}

// ---- q8_0: f16 scale, then 32 signed bytes

HARMONICS_FACE inline void decode_q8_0(const uint8_t* block, float* to) {
  const float scale = half_to_float(load_u16(block));
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

HARMONICS_FACE inline void encode_q8_0(const float* from, uint8_t* block) {
  if (refuse_block(from, 32, block, 34)) return;
  float most = 0;
  for (int i = 0; i < 32; ++i) most = std::fmax(most, std::fabs(from[i]));
  const float scale = most / 127, inverse = inverse_of(scale);
  store_u16(block, float_to_half(scale));
  for (int i = 0; i < 32; ++i) {
    const float steps = std::round(from[i] * inverse);  // ties away from zero
    block[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(steps < -127 ? -127.0f : steps > 127 ? 127.0f : steps));
  }
}

// ---- q4_0: f16 scale, then 16 bytes: element i in the low bits of byte i, element i + 16 in the high bits

HARMONICS_FACE inline void decode_q4_0(const uint8_t* block, float* to) {
  const float scale = half_to_float(load_u16(block));
  for (int i = 0; i < 16; ++i) {
    to[i] = scale * static_cast<float>((block[2 + i] & 15) - 8);
    to[i + 16] = scale * static_cast<float>((block[2 + i] >> 4) - 8);
  }
}

// The element of largest magnitude, the first of several, is mapped to -8.
HARMONICS_FACE inline void encode_q4_0(const float* from, uint8_t* block) {
  if (refuse_block(from, 32, block, 18)) return;
  const float scale = largest_of(from, 32) / -8, inverse = inverse_of(scale);
  store_u16(block, float_to_half(scale));
  const auto index = [inverse](float x) {  // x * inverse + 8.5 rounded once, as by a fused multiply-add
    const auto moved = static_cast<float>(static_cast<double>(x) * static_cast<double>(inverse) + 8.5);
    return static_cast<uint8_t>(moved < 0 ? 0.0f : moved > 15 ? 15.0f : moved);
  };
  for (int i = 0; i < 16; ++i) block[2 + i] = static_cast<uint8_t>(index(from[i]) | index(from[i + 16]) << 4);
}

// ---- q4_1: f16 scale and minimum, then as q4_0

HARMONICS_FACE inline void decode_q4_1(const uint8_t* block, float* to) {
  const float scale = half_to_float(load_u16(block)), least = half_to_float(load_u16(block + 2));
  for (int i = 0; i < 16; ++i) {
    const float low = scale * static_cast<float>(block[4 + i] & 15),
                high = scale * static_cast<float>(block[4 + i] >> 4);
    to[i] = low + least;
    to[i + 16] = high + least;
  }
}

HARMONICS_FACE inline void encode_q4_1(const float* from, uint8_t* block) {
  if (refuse_block(from, 32, block, 20)) return;
  const auto [least, most] = std::minmax_element(from, from + 32);
  const float base = *least, scale = (*most - base) / 15, inverse = inverse_of(scale);
  store_u16(block, float_to_half(scale));
  store_u16(block + 2, float_to_half(base));
  for (int i = 0; i < 16; ++i)
    block[4 + i] = static_cast<uint8_t>(index_of(from[i] - base, inverse, 0.5, 15) |
                                        index_of(from[i + 16] - base, inverse, 0.5, 15) << 4);
}

// ---- q5_0: f16 scale, 32 fifth bits, then the low four bits as q4_0

HARMONICS_FACE inline uint32_t load_u32(const uint8_t* p) {
  return static_cast<uint32_t>(load_u16(p)) | static_cast<uint32_t>(load_u16(p + 2)) << 16;
}

// Returns element i of 32, with low bits at `low` and fifth bits in `high`.
HARMONICS_FACE inline int five_bits(const uint8_t* low, uint32_t high, int i) {
  return (i < 16 ? low[i] & 15 : low[i - 16] >> 4) | static_cast<int>(high >> i & 1) << 4;
}

template <typename Index>
HARMONICS_FACE inline void store_five_bits(uint8_t* to, Index index) {
  uint32_t high = 0;
  for (int i = 0; i < 16; ++i) {
    const int a = index(i), b = index(i + 16);
    to[4 + i] = static_cast<uint8_t>((a & 15) | (b & 15) << 4);
    high |= static_cast<uint32_t>(a >> 4) << i | static_cast<uint32_t>(b >> 4) << (i + 16);
  }
  store_u16(to, static_cast<uint16_t>(high));
  store_u16(to + 2, static_cast<uint16_t>(high >> 16));
}

HARMONICS_FACE inline void decode_q5_0(const uint8_t* block, float* to) {
  const float scale = half_to_float(load_u16(block));
  const uint32_t high = load_u32(block + 2);
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(five_bits(block + 6, high, i) - 16);
}

// The element of largest magnitude, the first of several, is mapped to -16.
HARMONICS_FACE inline void encode_q5_0(const float* from, uint8_t* block) {
  if (refuse_block(from, 32, block, 22)) return;
  const float scale = largest_of(from, 32) / -16, inverse = inverse_of(scale);
  store_u16(block, float_to_half(scale));
  store_five_bits(block + 2, [=](int i) { return index_of(from[i], inverse, 16.5, 31); });
}

// ---- q5_1: f16 scale and minimum, then as q5_0

HARMONICS_FACE inline void decode_q5_1(const uint8_t* block, float* to) {
  const float scale = half_to_float(load_u16(block)), least = half_to_float(load_u16(block + 2));
  const uint32_t high = load_u32(block + 4);
  for (int i = 0; i < 32; ++i) {
    const float steps = scale * static_cast<float>(five_bits(block + 8, high, i));
    to[i] = steps + least;
  }
}

HARMONICS_FACE inline void encode_q5_1(const float* from, uint8_t* block) {
  if (refuse_block(from, 32, block, 24)) return;
  const auto [least, most] = std::minmax_element(from, from + 32);
  const float base = *least, scale = (*most - base) / 31, inverse = inverse_of(scale);
  store_u16(block, float_to_half(scale));
  store_u16(block + 2, float_to_half(base));
  store_five_bits(block + 4, [=](int i) { return index_of(from[i] - base, inverse, 0.5, 31); });
}

// ---- iq4_nl: f16 scale, then indices as q4_0

HARMONICS_FACE inline constexpr int8_t uneven_steps[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                           1,    13,   25,  38,  53,  69,  89,  113};

HARMONICS_FACE inline void decode_iq4_nl(const uint8_t* block, float* to) {
  const float scale = half_to_float(load_u16(block));
  for (int i = 0; i < 16; ++i) {
    to[i] = scale * static_cast<float>(uneven_steps[block[2 + i] & 15]);
    to[i + 16] = scale * static_cast<float>(uneven_steps[block[2 + i] >> 4]);
  }
}

// ---- iq4_xs: f16 scale of the steps, high bits of eight steps of 6 bits, their low halves, then runs of 32 as q4_0

HARMONICS_FACE inline void decode_iq4_xs(const uint8_t* block, float* to) {
  const float scale = half_to_float(load_u16(block));
  const int high = load_u16(block + 2);
  for (int run = 0; run < 8; ++run) {
    const int step = (block[4 + run / 2] >> (run % 2 * 4) & 15) | (high >> (2 * run) & 3) << 4;
    const float scaled = scale * static_cast<float>(step - 32);
    const uint8_t* bytes = block + 8 + 16 * run;
    for (int i = 0; i < 16; ++i) {
      to[32 * run + i] = scaled * static_cast<float>(uneven_steps[bytes[i] & 15]);
      to[32 * run + i + 16] = scaled * static_cast<float>(uneven_steps[bytes[i] >> 4]);
    }
  }
}

// ---- mxfp4 (OCP Microscaling formats): power-of-two scale, 255 is NaN; then E2M1 floats in the order of the indices
// of q4_0. Steps are in units of 1/2.

HARMONICS_FACE inline constexpr int8_t half_steps[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

HARMONICS_FACE inline float half_power(uint8_t exponent) {
  if (exponent == 255) return float_of(0x7fc00000u);
  return float_of(exponent < 2 ? 0x00200000u << exponent : static_cast<uint32_t>(exponent - 1) << 23);
}

HARMONICS_FACE inline void decode_mxfp4(const uint8_t* block, float* to) {
  const float scale = half_power(block[0]);
  for (int i = 0; i < 16; ++i) {
    to[i] = scale * static_cast<float>(half_steps[block[1 + i] & 15]);
    to[i + 16] = scale * static_cast<float>(half_steps[block[1 + i] >> 4]);
  }
}

// The largest magnitude has the largest exponent, 2. Rounds to the nearest float, of equally near ones the first.
HARMONICS_FACE inline void encode_mxfp4(const float* from, uint8_t* block) {
  if (refuse_block(from, 32, block, 17)) {
    block[0] = 255;
    return;
  }
  const float most = std::fabs(largest_of(from, 32));
  const int exponent = most > 0 ? std::ilogb(most) + 125 : 0;
  block[0] = static_cast<uint8_t>(exponent < 0 ? 0 : exponent);
  const float scale = half_power(block[0]);
  const auto index = [scale](float x) {
    int best = 0;
    for (int i = 1; i < 16; ++i)
      if (std::fabs(scale * static_cast<float>(half_steps[i]) - x) <
          std::fabs(scale * static_cast<float>(half_steps[best]) - x))
        best = i;
    return best;
  };
  for (int i = 0; i < 16; ++i) block[1 + i] = static_cast<uint8_t>(index(from[i]) | index(from[i + 16]) << 4);
}

// ---- q2_k: sixteen pairs (scale, minimum) of 4 bits, 64 bytes of indices, f16 scales of the scales and of the minima.
// Runs of 16 share a pair. Each half block is four runs of 32: bits 0 and 1 of 32 bytes, then bits 2 and 3, ...

HARMONICS_FACE inline void decode_q2_k(const uint8_t* block, float* to) {
  const float scales = half_to_float(load_u16(block + 80)), minima = half_to_float(load_u16(block + 82));
  for (int i = 0; i < 256; ++i) {
    const uint8_t pair = block[i / 16];
    const float step = scales * static_cast<float>(pair & 15), least = minima * static_cast<float>(pair >> 4);
    const float steps = step * static_cast<float>(block[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3);
    to[i] = steps - least;
  }
}

// ---- q3_k: 32 bytes of high bits, 64 bytes of two low bits as q2_k, sixteen scales of 6 bits in 12 bytes, f16 scale
// of the scales. Bit i of the high bytes belongs to run i of 32; if it is 0, 4 is subtracted from the index.

// Eight bytes contain the low halves of scales 0 to 7 and 8 to 15; the last four bytes contain two high bits of each.
HARMONICS_FACE inline int scale_of_q3_k(const uint8_t* packed, int run) {
  const int low = run < 8 ? packed[run] & 15 : packed[run - 8] >> 4;
  return (low | (packed[8 + run % 4] >> (run / 4 * 2) & 3) << 4) - 32;
}

HARMONICS_FACE inline void decode_q3_k(const uint8_t* block, float* to) {
  const float scale = half_to_float(load_u16(block + 108));
  for (int i = 0; i < 256; ++i) {
    const float step = scale * static_cast<float>(scale_of_q3_k(block + 96, i / 16));
    const int low = block[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3, high = block[i % 32] >> (i / 32) & 1;
    to[i] = step * static_cast<float>(low - (high ? 0 : 4));
  }
}

// ---- q4_k: f16 scales of the scales and of the minima, eight pairs (scale, minimum) of 6 bits in 12 bytes, 128 bytes
// of indices. Runs of 32 share a pair; two adjacent runs share 32 bytes, low bits first.

struct StepAndLeast {
  float step, least;
};
// Returns step and minimum of a run of a q4_k or q5_k block.
HARMONICS_FACE inline StepAndLeast pair_of_run(const uint8_t* block, int run) {
  const uint8_t* packed = block + 4;
  int scale = packed[run] & 63, minimum = packed[run + (run < 4 ? 4 : 0)] & 63;
  if (run >= 4) {  // four low bits of both in one byte, the two high bits in the bytes of the first four pairs
    scale = (packed[run + 4] & 15) | packed[run - 4] >> 6 << 4;
    minimum = packed[run + 4] >> 4 | packed[run] >> 6 << 4;
  }
  return {half_to_float(load_u16(block)) * static_cast<float>(scale),
          half_to_float(load_u16(block + 2)) * static_cast<float>(minimum)};
}

HARMONICS_FACE inline void decode_q4_k(const uint8_t* block, float* to) {
  for (int run = 0; run < 8; ++run) {
    const auto [step, least] = pair_of_run(block, run);
    const uint8_t* bytes = block + 16 + run / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const float steps = step * static_cast<float>(run % 2 ? bytes[i] >> 4 : bytes[i] & 15);
      to[32 * run + i] = steps - least;
    }
  }
}

// ---- q5_k: as q4_k, with 32 bytes of fifth bits before the indices; bit i belongs to run i

HARMONICS_FACE inline void decode_q5_k(const uint8_t* block, float* to) {
  for (int run = 0; run < 8; ++run) {
    const auto [step, least] = pair_of_run(block, run);
    const uint8_t* bytes = block + 48 + run / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int low = run % 2 ? bytes[i] >> 4 : bytes[i] & 15, high = block[16 + i] >> run & 1;
      const float steps = step * static_cast<float>(low | high << 4);
      to[32 * run + i] = steps - least;
    }
  }
}

// ---- q6_k: 128 bytes of low halves, 64 bytes of two high bits, 16 scales of 8 bits, f16 scale of the scales. Each
// half block is four runs of 32: low bits of 64 bytes, then high bits; runs of 16 share a scale.

HARMONICS_FACE inline void decode_q6_k(const uint8_t* block, float* to) {
  const float scale = half_to_float(load_u16(block + 208));
  for (int run = 0; run < 8; ++run) {
    const int half = run / 4, quarter = run % 4;
    const uint8_t *low = block + 64 * half + quarter % 2 * 32, *high = block + 128 + 32 * half,
                  *scales = block + 192 + 8 * half + 2 * quarter;
    for (int i = 0; i < 32; ++i) {
      const int four = quarter < 2 ? low[i] & 15 : low[i] >> 4, two = high[i] >> (2 * quarter) & 3;
      const float step = scale * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
      to[32 * run + i] = step * static_cast<float>((four | two << 4) - 32);
    }
  }
}

}  // namespace detail

}  // namespace harmonics
