// Tangent, hyperbolic functions and inverses: vector code for f32, accurate to a few units in the last place; the
// standard library for f64.
#include <harmonics/abi.h>

#include "kernels.hpp"
#include "vector_math.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr float kPi = 3.14159274f, kPiRest = -8.74227800e-8f;  // pi = kPi + kPiRest

// c0 + c1 z + c2 z^2 ...
template <typename... More>
HM_INLINE vf polynomial(vf z, float first, More... more) {
  if constexpr (sizeof...(more) == 0)
    return splat(first);
  else
    return fma(polynomial(z, more...), z, splat(first));
}

// Tangent for |x| <= 8192. pi / 2 is split into four terms; products with the first three are exact.
HM_INLINE vf tangent(vf x) {
  const vf n = vround(x * 0.63661977236758134f);
  vf r = fma(n, splat(-1.5703125f), x);
  r = fma(n, splat(-4.837512969970703125e-4f), r);
  r = fma(n, splat(-7.5495336205e-08f), r);
  r = fma(n, splat(-2.5633440683e-12f), r);
  const vf z = r * r;
  const vf p = polynomial(z, 3.3333155513e-1f, 1.3338834047e-1f, 5.3408395499e-2f, 2.4440627545e-2f, 3.1027907971e-3f,
                          9.3957129866e-3f);
  const vf y = choose(x == 0.0f, x, fma(p * z, r, r));
  return choose((__builtin_convertvector(n, vi) & 1) != 0, -1.0f / y, y);
}

// atan(low / high) for 0 <= low <= high; 0 if both are 0, pi / 4 if they are equal.
HM_INLINE vf arc(vf low, vf high) {
  const vf scale = choose(high > 1e37f, splat(0.25f), splat(1.0f));  // the sum below must not overflow
  const vi equal = low == high, wide = (low > 0.41421356f * high) | (equal & (high > 0.0f));  // above tan(pi / 8)
  const vf a = low * scale, b = high * scale;
  const vf t = choose(equal, vf{}, choose(wide, a - b, a) / choose(wide, a + b, b));
  const vf z = t * t;
  const vf p =
      polynomial(z, -3.3333316445e-1f, 1.9998465478e-1f, -1.4243422449e-1f, 1.0592943430e-1f, -6.0759082437e-2f);
  const vf r = fma(p * z, t, t);
  const vf y = choose(wide, (r + 0.25f * kPiRest) + 0.25f * kPi, r);
  return choose(t != t, low + high, y);
}

HM_INLINE vf arc_tangent(vf x) {
  const vf a = vabs(x), one = splat(1.0f);
  const vi steep = a > 1.0f;
  const vf r = arc(choose(steep, one, a), choose(steep, a, one));
  return with_sign_of(choose(steep, 0.5f * kPi - (r - 0.5f * kPiRest), r), x);
}

HM_INLINE vf arc_tangent_of(vf y, vf x) {
  const vf a = vabs(y), b = vabs(x);
  const vi steep = a > b;
  vf r = arc(choose(steep, b, a), choose(steep, a, b));
  r = choose(steep, 0.5f * kPi - (r - 0.5f * kPiRest), r);
  r = choose(bits(x) < 0, kPi - (r - kPiRest), r);
  return choose((x != x) | (y != y), x + y, with_sign_of(r, y));
}

// (asin(s) - s) / s for s^2 = z <= 1/4
HM_INLINE vf arc_sine_tail(vf z) {
  return z * polynomial(z, 1.6666752100e-1f, 7.4952974916e-2f, 4.5470375568e-2f, 2.4179525673e-2f, 4.2166285217e-2f);
}
HM_INLINE vf arc_sine(vf x) {
  const vf a = vabs(x);
  const vi far = a > 0.5f;
  const vf z = choose(far, (1.0f - a) * 0.5f, a * a), s = choose(far, vsqrt(z), a);  // NaN beyond 1
  const vf r = fma(arc_sine_tail(z), s, s);
  return with_sign_of(choose(far, 0.5f * kPi - (r + r - 0.5f * kPiRest), r), x);
}
HM_INLINE vf arc_cosine(vf x) {
  const vf a = vabs(x);
  const vi far = a > 0.5f;
  const vf z = choose(far, (1.0f - a) * 0.5f, a * a), s = choose(far, vsqrt(z), x);
  const vf r = fma(arc_sine_tail(z), s, s);
  const vf near = 0.5f * kPi - (r - 0.5f * kPiRest), left = kPi - (r + r - kPiRest);
  return choose(far, choose(x < 0.0f, left, r + r), near);
}

// exp(|x|) / 2 and exp(-|x|) / 2; the first does not overflow before its largest finite result.
struct Powers {
  vf rising, falling;
};
HM_INLINE Powers half_powers(vf a) {
  const vi large = a > 88.0f;
  const vf e = vexp(choose(large, a * 0.5f, a)), half = e * 0.5f;
  return {choose(large, half * e, half), choose(large, vf{}, 0.5f / e)};
}
HM_INLINE vf hyperbolic_sine(vf x) {
  const vf a = vabs(x), z = a * a;
  const Powers p = half_powers(a);
  const vf q = polynomial(z, 1.6666667163e-1f, 8.3333496004e-3f, 1.9836159481e-4f, 2.8169513371e-6f);
  return with_sign_of(choose(a < 1.0f, fma(q * z, a, a), p.rising - p.falling), x);
}
HM_INLINE vf hyperbolic_cosine(vf x) {
  const Powers p = half_powers(vabs(x));
  return p.rising + p.falling;
}

constexpr float kLog2 = 0.693147181f;
constexpr float kLarge = 1e9f;  // above, x^2 + 1 and x^2 - 1 round to x^2

HM_INLINE vf inverse_sine(vf x) {
  const vf a = vabs(x), square = a * a;
  const vf near = vlog1p(a + square / (vsqrt(square + 1.0f) + 1.0f));
  return with_sign_of(choose(a > kLarge, vlog(a) + kLog2, near), x);
}
HM_INLINE vf inverse_cosine(vf x) {
  const vf t = x - 1.0f;
  const vf near = vlog1p(t + vsqrt(fma(t, t, t + t)));
  return choose(x >= 1.0f, choose(x > kLarge, vlog(x) + kLog2, near), splat(__builtin_nanf("")));
}
HM_INLINE vf inverse_tangent(vf x) {
  const vf a = vabs(x);
  return with_sign_of(vlog1p((a + a) / (1.0f - a)) * 0.5f, x);
}

template <vf (*f)(vf)>
void map(const void* a, const void*, const void*, void* out, int64_t n) {
  const float* x = static_cast<const float*>(a);
  float* y = static_cast<float*>(out);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(y + i, f(load(x + i)));
  if (i < n) store_part(y + i, f(load_part(x + i, n - i)), n - i);
}

void map_tangent(const void* a, const void*, const void*, void* out, int64_t n) {
  const float* x = static_cast<const float*>(a);
  float* y = static_cast<float*>(out);
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t k = lanes_at(i, n);
    const vf v = load_part(x + i, k);
    vf r = tangent(v);
    const vi large = ~(vabs(v) <= 8192.0f);  // also true for NaN
    if (any(large)) [[unlikely]]
      for (int64_t j = 0; j < k; ++j)
        if (large[j]) r[j] = __builtin_tanf(v[j]);
    store_part(y + i, r, k);
  }
}

void map_arc_tangent_of(const void* a, const void* b, const void*, void* out, int64_t n) {
  const float *y = static_cast<const float*>(a), *x = static_cast<const float*>(b);
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t k = lanes_at(i, n);
    store_some(static_cast<float*>(out) + i, arc_tangent_of(load_some(y + i, k), load_some(x + i, k)), k);
  }
}

template <double (*f)(double)>
void map_double(const void* a, const void*, const void*, void* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<double*>(out)[i] = f(static_cast<const double*>(a)[i]);
}
void map_double_arc_tangent_of(const void* a, const void* b, const void*, void* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<double*>(out)[i] = __builtin_atan2(static_cast<const double*>(a)[i], static_cast<const double*>(b)[i]);
}
#define HM_DOUBLE(name) \
  double double_##name(double x) { return __builtin_##name(x); }
HM_DOUBLE(tan)
HM_DOUBLE(asin)
HM_DOUBLE(acos)
HM_DOUBLE(atan)
HM_DOUBLE(sinh)
HM_DOUBLE(cosh)
HM_DOUBLE(asinh)
HM_DOUBLE(acosh)
HM_DOUBLE(atanh)
#undef HM_DOUBLE

}  // namespace

Block find_trigonometric(ScalarOp op, uint32_t operand) {
  if (operand != HX_F32 && operand != HX_F64) return nullptr;
  const bool single = operand == HX_F32;
  switch (op) {
    case ScalarOp::tan_:
      return single ? map_tangent : map_double<double_tan>;
    case ScalarOp::asin_:
      return single ? map<arc_sine> : map_double<double_asin>;
    case ScalarOp::acos_:
      return single ? map<arc_cosine> : map_double<double_acos>;
    case ScalarOp::atan_:
      return single ? map<arc_tangent> : map_double<double_atan>;
    case ScalarOp::sinh_:
      return single ? map<hyperbolic_sine> : map_double<double_sinh>;
    case ScalarOp::cosh_:
      return single ? map<hyperbolic_cosine> : map_double<double_cosh>;
    case ScalarOp::asinh_:
      return single ? map<inverse_sine> : map_double<double_asinh>;
    case ScalarOp::acosh_:
      return single ? map<inverse_cosine> : map_double<double_acosh>;
    case ScalarOp::atanh_:
      return single ? map<inverse_tangent> : map_double<double_atanh>;
    case ScalarOp::atan2_:
      return single ? map_arc_tangent_of : map_double_arc_tangent_of;
    default:
      return nullptr;
  }
}

}  // namespace harmonics::cpu::HM_ISA
