// Emulates AVX512-FP16: fp16 numbers are floats, rounded after every operation.
#include <immintrin.h>

#include "product.hpp"

namespace harmonics::cpu::half {
namespace {

// Returns the exponent of the power of two that scales a magnitude below 2^limit, but not below half of that.
int32_t exponent_below(int32_t limit, float largest) {
  uint32_t bits;
  __builtin_memcpy(&bits, &largest, sizeof bits);
  const int32_t to = limit - 1 - (static_cast<int32_t>(bits >> 23) - 127);
  return largest == 0 ? 0 : to > 126 ? 126 : to;
}

float power_of_two(int32_t exponent) {
  const uint32_t bits = static_cast<uint32_t>(exponent + 127) << 23;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

// Ignores NaN, which must not affect the scale and propagates to the result anyway.
float larger(float a, float b) { return b > a ? b : a; }

// Returns the value of a number in bf16.
float widened(uint16_t x) {
  const uint32_t bits = uint32_t{x} << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

uint16_t rounded(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }

void pack_plainly(const RoundedOperand& x, uint32_t* to, int64_t) {
  const int64_t strip = x.is_b ? kHalfColumns : kHalfRows;
  for (int64_t i = 0; i < x.count; i += strip, to += x.is_b ? kHalfStripOfB : kHalfStripOfA)
    for (int64_t r = 0; r < strip; ++r) {
      const bool is_used = i + r < x.count;
      const auto term = [&](int64_t k) {
        const int64_t at = (i + r) * x.stride + k * x.depth_stride;
        if (x.type == StoredFloat::f32) return static_cast<const float*>(x.from)[at];
        const uint16_t number = static_cast<const uint16_t*>(x.from)[at];
        return x.type == StoredFloat::f16 ? _cvtsh_ss(number) : widened(number);
      };
      float largest = 0;
      for (int64_t k = 0; is_used && k < x.depth; ++k) largest = larger(largest, __builtin_fabsf(term(k)));
      const int32_t exponent = exponent_below(x.is_b ? kHalfLimitOfB : kHalfLimitOfA, largest);
      reinterpret_cast<float*>(to)[r] = static_cast<float>(-exponent);
      auto* const halves = reinterpret_cast<uint16_t*>(to + kHalfExponentsOfB);
      uint32_t* const pairs = to + kHalfExponentsOfA;
      for (int64_t k = 0; k < x.depth; ++k) {
        const uint16_t number = is_used ? rounded(term(k) * power_of_two(exponent)) : uint16_t{0};
        if (x.is_b)
          halves[k * kHalfColumns + r] = number;
        else
          pairs[x.depth_stride == 1 ? r * kHalfRowStride + k : k * kHalfTermStride + r] = 0x10001u * number;
      }
    }
}

struct Emulated {
  struct Halves {
    __m256 lanes[4];
  };
  using Kept = Halves;

  static __m256 rounded(__m256 v) { return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }
  static Halves zero() { return {}; }
  static Halves load(const uint16_t* p) {
    Halves h;
    for (int i = 0; i < 4; ++i) h.lanes[i] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + i));
    return h;
  }
  static Halves pair(const uint32_t* p) {
    const __m256 x = _mm256_set1_ps(_cvtsh_ss(static_cast<uint16_t>(*p)));
    return {{x, x, x, x}};
  }
  // The product of two fp16 numbers is exact in fp32; the sum is rounded to fp32 and then to fp16.
  static Halves fma(const Halves& a, const Halves& b, const Halves& c) {
    Halves h;
    for (int i = 0; i < 4; ++i) h.lanes[i] = rounded(_mm256_fmadd_ps(a.lanes[i], b.lanes[i], c.lanes[i]));
    return h;
  }
  static void keep(Kept& to, const Halves& v) { to = v; }
  static Halves plus(const Kept& before, const Halves& v) {
    Halves h;
    for (int i = 0; i < 4; ++i) h.lanes[i] = rounded(_mm256_add_ps(before.lanes[i], v.lanes[i]));
    return h;
  }
  static void settle() {}
  static void give_back(const Kept& v, float a_exponent, const float* b_exponents, int64_t columns, float* c,
                        bool add) {
    float totals[32];
    for (int i = 0; i < 4; ++i) _mm256_storeu_ps(totals + 8 * i, v.lanes[i]);
    for (int64_t j = 0; j < 32 && j < columns; ++j) {
      const float value = __builtin_ldexpf(totals[j], static_cast<int>(a_exponent + b_exponents[j]));
      c[j] = add ? c[j] + value : value;
    }
  }
};

}  // namespace

constexpr RoundedRoutines emulated = routines("packed fp16 chunks, emulated", "sparse or packed fp16 chunks, emulated",
                                              pack_plainly, multiply<Emulated>);

}  // namespace harmonics::cpu::half
