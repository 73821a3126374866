// Exponentials of an online softmax, as powers of two.
#pragma once

#include "vector_math.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr float kLog2E = 1.44269504088896341f, kLog2 = 0.69314718055994531f;

// scale * s - shift, rounded once: for large scores a rounded product would lose the digits of the difference.
HM_INLINE vf difference(vf s, vf scale, vf shift) {
#if defined(__AVX2__)
  return fma(s, scale, -shift);
#else
  const auto half = [](__m128 a, __m128 b, __m128 c) __attribute__((always_inline)) {
    return _mm_cvtpd_ps(_mm_sub_pd(_mm_mul_pd(_mm_cvtps_pd(a), _mm_cvtps_pd(b)), _mm_cvtps_pd(c)));
  };
  const auto upper = [](__m128 v) __attribute__((always_inline)) { return _mm_movehl_ps(v, v); };
  return _mm_movelh_ps(half(s, scale, shift), half(upper(s), upper(scale), upper(shift)));
#endif
}

// 2^(scale * s - shift); flushes subnormal results to 0 and propagates NaN.
HM_INLINE vf power(vf s, vf scale, vf shift) {
  const vf t = difference(s, scale, shift);
#if defined(__AVX512F__)
  const vf whole = vround(t);
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(t, splat(-126.0f), _CMP_NLT_UQ), exp2_of_fraction(t - whole), whole);
#else
  return choose(t < -126.0f, vf{}, exp2_within(vmin(splat(127.0f), vmax(splat(-126.0f), t))));
#endif
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
