// Optimizer rules for one vector of a parameter, with the operations and order of the reference body, except that
// AdamRule fuses multiplication and addition. Private to the including translation unit.
#pragma once

#include "../optimizer.hpp"
#include "simd.hpp"
#include "stored_moments.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Flushes subnormal numbers to zero in its scope. Moments of weights without gradients decay to subnormal numbers,
// whose operations are very slow.
class FlushDenormals {
 public:
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero); }
  ~FlushDenormals() { _mm_setcsr(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
  unsigned before_;
};

#if defined(__AVX512F__)
HM_INLINE vf fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a b, rounded once
HM_INLINE vf fms(vf a, vf b, vf c) { return _mm512_fmsub_ps(a, b, c); }    // a b - c, rounded once
#elif defined(__AVX2__)
HM_INLINE vf fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
#else
HM_INLINE vf fnma(vf a, vf b, vf c) { return c - a * b; }
#endif

// Returns m / (sqrt(v) * scale + epsilon), v >= 0, by root and quotient.
HM_INLINE vf quotient_of_root(vf m, vf v, vf scale, vf epsilon) { return m / fma(vsqrt(v), scale, epsilon); }

// Vectors whose steps are interleaved, operation by operation. A step is a dependency chain too long for out-of-order
// execution to overlap with the next one.
#if defined(__AVX512F__)
constexpr int kTogether = 4;
#else
constexpr int kTogether = 1;
#endif

// A rule has kMoments moments per weight. step() replaces them and returns the new weight.
template <bool kMoving>
struct SgdRule {
  static constexpr int kMoments = kMoving;
  float lr, momentum, decay;
  bool nesterov;
  SgdRule(const OptimizerContext& c, float rate, const void*)
      : lr(rate),
        momentum(static_cast<float>(c.momentum)),
        decay(static_cast<float>(c.weight_decay)),
        nesterov(c.nesterov) {}
  HM_INLINE vf step(vf w, vf g, vf* moments) const {
    if (decay != 0) g = g + decay * w;
    if constexpr (kMoving) {
      const vf v = momentum * moments[0] + g;
      moments[0] = v;
      g = nesterov ? g + momentum * v : v;
    }
    return w - lr * g;
  }
};

// Adam and AdamW. kRough: quotients accurate to 2^-12, for moments with coarser rounding.
//
// With AVX-512, root and quotient are estimates, refined by FMA, which are faster than the divider. Factors common to
// all weights are folded into the divisor, (sqrt(v) * scale + epsilon) / size. The quotient is divided where the
// divider works beside the multiply-adds of a product.
template <bool kRough = false>
struct AdamRule {
  static constexpr int kMoments = 2;
  float size, scale, epsilon, decay, keep, rest1, beta2, rest2;
  float half_scale, more_scale, part_of_epsilon;  // of the refined divisor: 0.5, 1.5 scale / size; epsilon / size
  bool shrink, penalise, estimates, divides;
  AdamRule(const OptimizerContext& c, float lr, const void* step) {
    const double t =
        static_cast<double>(c.wide_step ? *static_cast<const int64_t*>(step) : *static_cast<const int32_t*>(step));
    // Bias corrections start near 0, so they are computed in f64.
    size = static_cast<float>(lr / (1 - __builtin_pow(c.beta1, t)));
    scale = static_cast<float>(1 / __builtin_sqrt(1 - __builtin_pow(c.beta2, t)));
    epsilon = static_cast<float>(c.epsilon), decay = static_cast<float>(c.weight_decay);
    divides = c.between;
    shrink = c.decoupled && decay != 0, penalise = !c.decoupled && decay != 0;
    keep = shrink ? 1.0f - lr * decay : 1;
    rest1 = static_cast<float>(1 - c.beta1), beta2 = static_cast<float>(c.beta2),
    rest2 = static_cast<float>(1 - c.beta2);
    // With a root below 2^64, the divisor has a normal reciprocal.
    estimates = epsilon >= 0x1p-100f && epsilon <= 0x1p100f && scale <= 0x1p30f;
    if (kRough) return;
    half_scale = 0.5f * scale / size, more_scale = 1.5f * scale / size, part_of_epsilon = epsilon / size;
    // The folded divisor as well. A square of which little is kept must not be the difference of two larger numbers.
    estimates = estimates && beta2 >= 0.5f && part_of_epsilon >= 0x1p-60f && part_of_epsilon <= 0x1p60f &&
                half_scale >= 0x1p-60f && more_scale <= 0x1p60f;
  }
  HM_INLINE vf step(vf w, vf g, vf* moments) const {
    vf weight[1] = {w}, gradient[1] = {g}, both[2][1] = {{moments[0]}, {moments[1]}};
    step_together(weight, gradient, both);
    moments[0] = both[0][0], moments[1] = both[1][0];
    return weight[0];
  }
  // Steps kCount vectors, operation by operation.
  template <int kCount>
  HM_INLINE void step_together(vf (&w)[kCount], vf (&g)[kCount], vf (*moments)[kCount]) const {
    vf* const mean = moments[0];
    vf* const square = moments[1];
    const auto each = [](auto run) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int v = 0; v < kCount; ++v) run(v);
    };
    if (penalise) each([&](int v) __attribute__((always_inline)) { g[v] = g[v] + decay * w[v]; });
    each([&](int v) __attribute__((always_inline)) { mean[v] = fma(g[v] - mean[v], splat(rest1), mean[v]); });
#if defined(__AVX512F__)
    if (__builtin_expect(estimates, 1)) {
      vf y[kCount], d[kCount], r[kCount];
      const auto estimate_root = [&] __attribute__((always_inline)) {
        each([&](int v)
                 __attribute__((always_inline)) { y[v] = _mm512_rsqrt14_ps(vmax(square[v], splat(0x1p-126f))); });
        each([&](int v) __attribute__((always_inline)) { d[v] = square[v] * y[v]; });
      };
      if constexpr (kRough) {
        keep_square(g, square);
        estimate_root();
        each([&](int v) __attribute__((always_inline)) { d[v] = fma(d[v], splat(scale), splat(epsilon)); });
        each([&](int v) __attribute__((always_inline)) { r[v] = mean[v] * (vf)_mm512_rcp14_ps(d[v]); });
        if (shrink) each([&](int v) __attribute__((always_inline)) { w[v] = w[v] * keep; });
        each([&](int v) __attribute__((always_inline)) { w[v] = fnma(r[v], splat(size), w[v]); });
      } else {
        each([&](int v) __attribute__((always_inline)) { d[v] = fms(g[v], g[v], square[v]); });
        each([&](int v) __attribute__((always_inline)) { square[v] = fma(d[v], splat(rest2), square[v]); });
        estimate_root();
        // The divisor by Newton's step for the root: x y (1.5 - 0.5 x y y) scale + epsilon.
        each([&](int v) __attribute__((always_inline)) { y[v] = d[v] * y[v]; });
        each([&](int v) __attribute__((always_inline)) { y[v] = fnma(y[v], splat(half_scale), splat(more_scale)); });
        each([&](int v) __attribute__((always_inline)) { d[v] = fma(d[v], y[v], splat(part_of_epsilon)); });
        if (divides) {
          each([&](int v) __attribute__((always_inline)) { r[v] = mean[v] / d[v]; });
        } else {
          // The quotient, corrected by the error of the reciprocal.
          each([&](int v) __attribute__((always_inline)) { r[v] = _mm512_rcp14_ps(d[v]); });
          each([&](int v) __attribute__((always_inline)) { d[v] = fnma(d[v], r[v], splat(1)); });
          each([&](int v) __attribute__((always_inline)) { r[v] = mean[v] * r[v]; });
          each([&](int v) __attribute__((always_inline)) { r[v] = fma(r[v], d[v], r[v]); });
        }
        each([&](int v) __attribute__((always_inline)) { w[v] = fms(w[v], splat(keep), r[v]); });
      }
      return;
    }
#endif
    keep_square(g, square);
    if (shrink) each([&](int v) __attribute__((always_inline)) { w[v] = w[v] * keep; });
    for (int v = 0; v < kCount; ++v)
      w[v] = fnma(quotient_of_root(mean[v], square[v], splat(scale), splat(epsilon)), splat(size), w[v]);
  }

 private:
  template <int kCount>
  HM_INLINE void keep_square(const vf (&g)[kCount], vf* square) const {
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) square[v] = fma(g[v] * g[v], splat(rest2), square[v] * beta2);
  }
};

struct LionRule {
  static constexpr int kMoments = 1;
  float lr, beta1, rest1, beta2, rest2, keep;
  LionRule(const OptimizerContext& c, float rate, const void*)
      : lr(rate),
        beta1(static_cast<float>(c.beta1)),
        rest1(static_cast<float>(1 - c.beta1)),
        beta2(static_cast<float>(c.beta2)),
        rest2(static_cast<float>(1 - c.beta2)),
        keep(1.0f - rate * static_cast<float>(c.weight_decay)) {}
  HM_INLINE vf step(vf w, vf g, vf* moments) const {
    const vf old = moments[0], mixed = beta1 * old + rest1 * g;
    // The sign; 0 and NaN remain.
    const vf sign = choose(mixed > 0, splat(1), choose(mixed < 0, splat(-1), mixed));
    moments[0] = beta2 * old + rest2 * g;
    return w * keep - lr * sign;
  }
};

// Contiguous elements of w, its gradient and its moments, which are float or bf16.
template <typename Rule, typename Moment = float>
struct Elements {
  const float *w, *g;
  const Moment* old[Rule::kMoments + 1];
  float* new_w;
  Moment* now[Rule::kMoments + 1];
  RandomBits random;
  int64_t place;  // index in w of the first element, which determines the random bits
  HM_INLINE void step(const Rule& rule, int64_t i, int64_t n, vf weight, vf gradient) const {
    vf moments[Rule::kMoments + 1];
    for (int k = 0; k < Rule::kMoments; ++k) moments[k] = load_moment(old[k] + i, n);
    const vf next = rule.step(weight, gradient, moments);
    const vu bits = sizeof(Moment) < sizeof(float) ? random.at(place + i) : vu{};
    for (int k = 0; k < Rule::kMoments; ++k) store_moment(now[k] + i, moments[k], n, bits_of<16>(bits, k));
    store_some(new_w + i, next, n);
  }
  // Steps kTogether whole vectors from i. gradient(k, weight) returns the gradient of vector k.
  template <typename Gradient>
  HM_INLINE void step_together(const Rule& rule, int64_t i, const Gradient& gradient) const {
    vf weights[kTogether], gradients[kTogether], moments[Rule::kMoments + 1][kTogether];
#pragma GCC unroll 8
    for (int v = 0; v < kTogether; ++v) {
      weights[v] = load(w + i + v * kWidth);
      gradients[v] = gradient(v, weights[v]);
      for (int k = 0; k < Rule::kMoments; ++k) moments[k][v] = load_moment(old[k] + i + v * kWidth, kWidth);
    }
    if constexpr (requires { rule.step_together(weights, gradients, moments); }) {
      rule.step_together(weights, gradients, moments);
    } else {
      for (int v = 0; v < kTogether; ++v) {
        vf own[Rule::kMoments + 1];
        for (int k = 0; k < Rule::kMoments; ++k) own[k] = moments[k][v];
        weights[v] = rule.step(weights[v], gradients[v], own);
        for (int k = 0; k < Rule::kMoments; ++k) moments[k][v] = own[k];
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < kTogether; ++v) {
      const int64_t at = i + v * kWidth;
      const vu bits = sizeof(Moment) < sizeof(float) ? random.at(place + at) : vu{};
      for (int k = 0; k < Rule::kMoments; ++k) store_moment(now[k] + at, moments[k][v], kWidth, bits_of<16>(bits, k));
      store(new_w + at, weights[v]);
    }
  }
  // Prefetches later elements of a pass over all of them; the hardware prefetcher stops at page boundaries.
  HM_INLINE void fetch(int64_t i) const {
    constexpr int64_t kAhead = 1024;
    __builtin_prefetch(w + i + kAhead);
    for (int k = 0; k < Rule::kMoments; ++k) __builtin_prefetch(old[k] + i + kAhead);
  }
  // Steps elements [begin, end). kPass: as part of a pass over all elements, with prefetch.
  template <bool kPass>
  HM_INLINE void steps(const Rule& rule, int64_t begin, int64_t end) const {
    steps(
        rule, begin, end, [&](int64_t i) __attribute__((always_inline)) {
          if (kPass) fetch(i);
        });
  }
  // Likewise; calls ahead(i) before the step of each vector.
  template <typename Ahead>
  HM_INLINE void steps(const Rule& rule, int64_t begin, int64_t end, const Ahead& ahead) const {
    const auto step_some = [&](int64_t i, int64_t n) __attribute__((always_inline)) {
      ahead(i);
      step(rule, i, n, load_some(w + i, n), load_some(g + i, n));
    };
    int64_t i = begin;
    if constexpr (kTogether > 1)
      for (; i + kTogether * kWidth <= end; i += kTogether * kWidth) {
        for (int64_t v = 0; v < kTogether; ++v) ahead(i + v * kWidth);
        step_together(
            rule, i, [&](int64_t v, vf) __attribute__((always_inline)) { return load(g + i + v * kWidth); });
      }
    for (; i + kWidth <= end; i += kWidth) step_some(i, kWidth);
    if (i < end) step_some(i, end - i);
  }
};

// Returns all elements of w. `moments`, `results`: the buffers of the first moment and of the new w.
template <typename Rule, typename Moment>
HM_INLINE Elements<Rule, Moment> elements_of(void* const* buffers, int moments, int results, const RandomBits& random) {
  Elements<Rule, Moment> all{{}, {}, {}, {}, {}, random, 0};
  all.w = static_cast<const float*>(buffers[0]), all.new_w = static_cast<float*>(buffers[results]);
  for (int k = 0; k < Rule::kMoments; ++k)
    all.old[k] = static_cast<const Moment*>(buffers[moments + k]),
    all.now[k] = static_cast<Moment*>(buffers[results + 1 + k]);
  return all;
}
template <typename Rule, typename Moment>
HM_INLINE Elements<Rule, Moment> from_place(Elements<Rule, Moment> x, int64_t at, const float* g) {
  x.w += at, x.new_w += at, x.place = at, x.g = g;
  for (int k = 0; k < Rule::kMoments; ++k) x.old[k] += at, x.now[k] += at;
  return x;
}

// Returns the step number; 0 if the rule has none.
HM_INLINE uint32_t step_number(const OptimizerContext& c, const void* step) {
  if (!c.counts_steps) return 0;
  return static_cast<uint32_t>(c.wide_step ? *static_cast<const int64_t*>(step) : *static_cast<const int32_t*>(step));
}

// Returns weights [..., n] with coded moments. `moments`, `results`: the buffers of the first moment and of the new w.
// The scales follow all moments.
template <typename Rule>
HM_INLINE CodedWeights coded_weights(void* const* buffers, int moments, int results, int64_t n, uint32_t step) {
  constexpr int kMoments = Rule::kMoments;
  CodedWeights c{static_cast<const float*>(buffers[0]), static_cast<float*>(buffers[results]), {}, n, RandomBits(step)};
  for (int k = 0; k < kMoments; ++k) {
    c.moments.old[k] = static_cast<const uint8_t*>(buffers[moments + k]);
    c.moments.old_scale[k] = static_cast<const uint8_t*>(buffers[moments + kMoments + k]);
    c.moments.now[k] = static_cast<uint8_t*>(buffers[results + 1 + k]);
    c.moments.now_scale[k] = static_cast<uint8_t*>(buffers[results + 1 + kMoments + k]);
  }
  return c;
}

// A rule and the stored type of its moments: float, uint16_t (bf16) or uint8_t (coded).
template <typename R, typename M>
struct StepTypes {
  using Rule = R;
  using Moment = M;
  static constexpr bool kCoded = sizeof(M) == 1;
  static constexpr int kTensors = R::kMoments * (kCoded ? 2 : 1);  // moments and scales
};
template <typename Exact, typename Rough, typename Run>
HM_INLINE void with_moments(MomentType moments, const Run& run) {
  switch (moments) {
    case MomentType::f32:
      return run(StepTypes<Exact, float>{});
    case MomentType::bf16:
      return run(StepTypes<Rough, uint16_t>{});
    case MomentType::coded:
      return run(StepTypes<Rough, uint8_t>{});
  }
}
// Calls run(StepTypes{}) with the types of `c`.
template <typename Run>
HM_INLINE void with_step_types(UpdateKind kind, const OptimizerContext& c, const Run& run) {
  switch (kind) {
    case UpdateKind::sgd:
      return c.has_velocity ? with_moments<SgdRule<true>, SgdRule<true>>(c.moments, run)
                            : run(StepTypes<SgdRule<false>, float>{});
    case UpdateKind::adam:
      return with_moments<AdamRule<false>, AdamRule<true>>(c.moments, run);
    case UpdateKind::lion:
      return with_moments<LionRule, LionRule>(c.moments, run);
  }
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
