// What an optimizer does to one vector of a parameter, in the operations and order of its reference body. Private to
// the including translation unit.
#pragma once

#include "../optimizer.hpp"
#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// A rule has kMoments moments a weight. step() replaces them and returns the new weight.
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

// Adam and AdamW.
struct AdamRule {
  static constexpr int kMoments = 2;
  float size, spread, epsilon, decay, keep, rest1, beta2, rest2;
  bool shrink, penalise;
  AdamRule(const OptimizerContext& c, float lr, const void* step) {
    const double t =
        static_cast<double>(c.wide_step ? *static_cast<const int64_t*>(step) : *static_cast<const int32_t*>(step));
    // Bias corrections start near 0, so they are computed in f64.
    size = static_cast<float>(lr / (1 - __builtin_pow(c.beta1, t)));
    spread = static_cast<float>(__builtin_sqrt(1 - __builtin_pow(c.beta2, t)));
    epsilon = static_cast<float>(c.epsilon), decay = static_cast<float>(c.weight_decay);
    keep = 1.0f - lr * decay;
    rest1 = static_cast<float>(1 - c.beta1), beta2 = static_cast<float>(c.beta2),
    rest2 = static_cast<float>(1 - c.beta2);
    shrink = c.decoupled && decay != 0, penalise = !c.decoupled && decay != 0;
  }
  HM_INLINE vf step(vf w, vf g, vf* moments) const {
    if (penalise) g = g + decay * w;
    if (shrink) w = w * keep;
    const vf mean = moments[0] + (g - moments[0]) * rest1;
    const vf square = moments[1] * beta2 + rest2 * (g * g);
    moments[0] = mean, moments[1] = square;
    return w - size * (mean / (vsqrt(square) / spread + epsilon));
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
    // For 0 and NaN, the interpolated value itself.
    const vf sign = choose(mixed > 0, splat(1), choose(mixed < 0, splat(-1), mixed));
    moments[0] = beta2 * old + rest2 * g;
    return w * keep - lr * sign;
  }
};

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
