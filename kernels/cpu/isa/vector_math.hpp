// Elementary functions on f32 vectors, accurate to a few units in the last place for all inputs, including infinities,
// NaN, subnormal numbers and signed zeros.
#pragma once

#include <cmath>

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();

// x * 2^n, n in [-252, 254], in two steps so that subnormal results and 2^128 are reached.
HM_INLINE vf scale_by_power(vf x, vi n) {
  const vi half = n >> 1;
  const vf a = as_float((half + 127) << 23), b = as_float((n - half + 127) << 23);
  return x * a * b;
}

struct Reduced {
  vf r;
  vi power;  // in the lowest bits
};
// x = n log(2) + r, |r| <= log(2) / 2, for |x| <= 150. Adding 1.5 * 2^23 rounds and leaves n in the low bits.
HM_INLINE Reduced reduce_exponent(vf x) {
  constexpr float kRounder = 12582912.0f;
  const vf shifted = fma(x, splat(1.44269504088896341f), splat(kRounder));
  const vf n = shifted - kRounder;
  return {fma(n, splat(-1.428606765330187e-06f), fma(n, splat(-0.693145751953125f), x)), bits(shifted)};
}
// (exp(r) - 1 - r) / r^2
HM_INLINE vf exponential_tail(vf r) {
  vf p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  return fma(p, r, splat(5.0000001201e-1f));
}

// exp(x) for x in [-87, 88], where results and intermediate values are normal numbers.
HM_INLINE vf exp_within(vf x) {
  const Reduced e = reduce_exponent(x);
  const vf p = fma(exponential_tail(e.r), e.r * e.r, e.r) + 1.0f;
  return as_float((vi)((vu)bits(p) + ((vu)e.power << 23)));
}
HM_INLINE vf exp_anywhere(vf x) {
  const vf clamped = vmin(splat(89.0f), vmax(splat(-104.5f), x));  // propagates NaN
  const Reduced e = reduce_exponent(clamped);
  const vf p = fma(exponential_tail(e.r), e.r * e.r, e.r) + 1.0f;
  return scale_by_power(p, e.power << 23 >> 23);
}
// Both paths give the same bits in their common range.
HM_INLINE vf vexp(vf x) {
  if (any(~(vabs(x) <= 87.0f))) [[unlikely]]
    return exp_anywhere(x);
  return exp_within(x);
}

// 2^t for t in [-126, 127], accurate to two units in the last place; propagates NaN.
HM_INLINE vf exp2_of_fraction(vf f) {
  vf p = splat(1.5353434811e-4f);
  p = fma(p, f, splat(1.3398884679e-3f));
  p = fma(p, f, splat(9.6184371523e-3f));
  p = fma(p, f, splat(5.5503324375e-2f));
  p = fma(p, f, splat(0.24022647915f));
  p = fma(p, f, splat(0.69314720288f));
  return fma(p, f, splat(1.0f));
}
HM_INLINE vf exp2_within(vf t) {
  constexpr float kRounder = 12582912.0f;
  const vf shifted = t + kRounder;
  return exp2_of_fraction(t - (shifted - kRounder)) * as_float((bits(shifted) + 127) << 23);
}

HM_INLINE vf vexpm1(vf x) {
  const vf clamped = vmin(splat(89.0f), vmax(splat(-20.0f), x));
  const Reduced e = reduce_exponent(clamped);
  const vf p = fma(exponential_tail(e.r), e.r * e.r, e.r);
  // 2^n p + (2^n - 1), halved so that 2^128 does not overflow early.
  const vf half = as_float((e.power + 126) << 23);
  const vf y = fma(half, p, half - 0.5f) * 2.0f;
  return choose(e.power << 23 == 0, choose(x == 0.0f, x, p), y);
}

// log(1 + f) for sqrt(1/2) <= 1 + f < sqrt(2), plus n log(2).
HM_INLINE vf log_of_reduced(vf f, vf n) {
  const vf z = f * f;
  vf p = splat(7.0376836292e-2f);
  p = fma(p, f, splat(-1.1514610310e-1f));
  p = fma(p, f, splat(1.1676998740e-1f));
  p = fma(p, f, splat(-1.2420140846e-1f));
  p = fma(p, f, splat(1.4249322787e-1f));
  p = fma(p, f, splat(-1.6668057665e-1f));
  p = fma(p, f, splat(2.0000714765e-1f));
  p = fma(p, f, splat(-2.4999993993e-1f));
  p = fma(p, f, splat(3.3333331174e-1f));
  vf y = p * f * z;
  y = fma(n, splat(-2.12194440e-4f), y);
  y = fma(z, splat(-0.5f), y);
  return fma(n, splat(0.693359375f), f + y);
}

HM_INLINE vf vlog(vf x) {
  const vi tiny = x < 1.17549435e-38f;
  const vf scaled = choose(tiny, x * 8388608.0f, x);
  // Subtracting the bits of sqrt(1/2) makes the exponent that of a mantissa in [sqrt(1/2), sqrt(2)). Unsigned, since
  // the difference may wrap.
  const vi shifted = (vi)((vu)bits(scaled) - 0x3f3504f3u);
  const vi exponent = (shifted >> 23) - (tiny & 23);
  const vi b = (shifted & 0x007fffff) + 0x3f3504f3;
  vf y = log_of_reduced(as_float(b) - 1.0f, __builtin_convertvector(exponent, vf));
  y = choose(x == 0.0f, splat(-kInfinity), y);
  y = choose(x == kInfinity, x, y);
  return choose((x < 0.0f) | (x != x), splat(__builtin_nanf("")), y);
}

HM_INLINE vf vlog1p(vf x) {
  const vf u = x + 1.0f;
  const vf lost = x - (u - 1.0f);  // rounding error of u
  const vf y = vlog(u) + lost / u;
  return choose((u == 1.0f) | (x == -1.0f) | (x == kInfinity), choose(u == 1.0f, x, vlog(u)), y);
}

HM_INLINE vf vlogistic(vf x) {
  const vf e = vexp(-vabs(x));
  return choose(x < 0.0f, e, splat(1.0f)) / (e + 1.0f);
}

HM_INLINE vf vtanh(vf x) {
  const vf a = vabs(x);
  const vf e = vexpm1(vmin(splat(20.0f), a + a));  // for NaN vmin keeps its second operand
  return with_sign_of(e / (e + 2.0f), x);
}

// Two minimax polynomials (after N. Juffa), below and above 475/512.
HM_INLINE vf erf_near(vf x) {
  const vf s = x * x;
  vf y = splat(-5.96761703e-4f);
  y = fma(y, s, splat(4.99119423e-3f));
  y = fma(y, s, splat(-2.67681349e-2f));
  y = fma(y, s, splat(1.12819925e-1f));
  y = fma(y, s, splat(-3.76125336e-1f));
  y = fma(y, s, splat(1.28379166e-1f));
  return fma(y, x, x);
}
HM_INLINE vf erf_far(vf x) {
  const vf t = vabs(x), s = x * x;
  vf y = fma(splat(-1.72853470e-5f), t, splat(3.83197126e-4f));
  y = fma(y, s, fma(splat(-3.88396438e-3f), t, splat(2.42546219e-2f)));
  y = fma(y, t, splat(-1.06777877e-1f));
  y = fma(y, t, splat(-6.34846687e-1f));
  y = fma(y, t, splat(-1.28717512e-1f));
  y = fma(y, t, -t);
  return copy_sign(1.0f - vexp(choose(t > 9.0f, splat(-100.0f), y)), x);
}
HM_INLINE vf verf(vf x) {
  const vi far = vabs(x) > 0.927734375f;  // false for NaN
  const vf near = erf_near(x);
  return any(far) ? choose(far, erf_far(x), near) : near;
}

// The normal distribution from its tail: exp(-z^2 / 2) times a rational function (Mills' ratio, fitted to 5e-9).
struct Normal {
  vf cumulative;   // up to x; small values keep their precision
  vf exponential;  // exp(-x^2 / 2)
};
HM_INLINE Normal normal(vf x) {
  constexpr float kEnd = 13.19f;            // above, the tail is subnormal
  const vf z = vmin(splat(kEnd), vabs(x));  // propagates NaN
  vf p = splat(4.0373099999e-3f);
  p = fma(p, z, splat(4.0100155572e-2f));
  p = fma(p, z, splat(0.18165199441f));
  p = fma(p, z, splat(0.43615446548f));
  p = fma(p, z, splat(0.50000000254f));
  vf q = splat(1.0119896608e-2f);
  q = fma(q, z, splat(0.10052339138f));
  q = fma(q, z, splat(0.46529149584f));
  q = fma(q, z, splat(1.1959216414f));
  q = fma(q, z, splat(1.670193859f));
  q = fma(q, z, splat(1.0f));
  const vf e = choose(z < kEnd, exp_within(z * z * -0.5f), vf{});
  const vf tail = e * p / q;
  return {choose(x < 0.0f, tail, 1.0f - tail), e};
}
HM_INLINE vf vgelu(vf x) { return x * normal(x).cumulative; }
HM_INLINE vf gelu_derivative(vf x, const Normal& n) {
  return fma(x * 0.39894228040143268f, n.exponential, n.cumulative);
}
HM_INLINE vf gelu_derivative(vf x) { return gelu_derivative(x, normal(x)); }

// Sine of x + quarter * pi / 2 for |x| <= 8192; pi / 2 is split into three terms.
HM_INLINE vf sine(vf x, int quarter) {
  const vf n = vround(x * 0.63661977236758134f);
  vf r = fma(n, splat(-1.5703125f), x);
  r = fma(n, splat(-4.837512969970703125e-4f), r);
  r = fma(n, splat(-7.54978995489188216e-8f), r);
  const vi q = __builtin_convertvector(n, vi) + quarter;
  const vf z = r * r;
  vf s = fma(fma(splat(-1.9515295891e-4f), z, splat(8.3321608736e-3f)), z, splat(-1.6666654611e-1f));
  s = fma(s * z, r, r);
  vf c = fma(fma(splat(2.443315711809948e-5f), z, splat(-1.388731625493765e-3f)), z, splat(4.166664568298827e-2f));
  c = fma(c * z, z, fma(z, splat(-0.5f), splat(1.0f)));
  const vf y = choose((q & 1) != 0, c, s);
  return as_float(bits(y) ^ ((q & 2) << 30));
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
