#include "../optimizer.hpp"

#include "kernels.hpp"
#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Parts begin at whole vectors.
HM_INLINE Range elements(const OptimizerContext& c, uint32_t part) {
  const Range vectors = share((c.count + kWidth - 1) / kWidth, c.parts, part);
  return {vectors.begin * kWidth, vectors.end * kWidth < c.count ? vectors.end * kWidth : c.count};
}

}  // namespace

// w, g, [velocity], lr -> w, [velocity]
void sgd(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const OptimizerContext*>(context);
  const bool moving = c.has_velocity;
  const float *w = static_cast<const float*>(buffers[0]), *g = static_cast<const float*>(buffers[1]);
  const float* velocity = moving ? static_cast<const float*>(buffers[2]) : nullptr;
  const float lr = *static_cast<const float*>(buffers[moving ? 3 : 2]);
  float* new_w = static_cast<float*>(buffers[moving ? 4 : 3]);
  float* new_velocity = moving ? static_cast<float*>(buffers[5]) : nullptr;
  const float momentum = static_cast<float>(c.momentum), decay = static_cast<float>(c.weight_decay);
  const Range r = elements(c, part);
  for (int64_t i = r.begin; i < r.end; i += kWidth) {
    const int64_t n = r.end - i < kWidth ? r.end - i : kWidth;
    const vf weight = load_some(w + i, n);
    vf step = load_some(g + i, n);
    if (decay != 0) step = step + decay * weight;
    if (moving) {
      const vf v = momentum * load_some(velocity + i, n) + step;
      step = c.nesterov ? step + momentum * v : v;
      store_some(new_velocity + i, v, n);
    }
    store_some(new_w + i, weight - lr * step, n);
  }
}

// w, g, m, v, lr, step -> w, m, v
void adam(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const OptimizerContext*>(context);
  const float *w = static_cast<const float*>(buffers[0]), *g = static_cast<const float*>(buffers[1]);
  const float *m = static_cast<const float*>(buffers[2]), *v = static_cast<const float*>(buffers[3]);
  float *new_w = static_cast<float*>(buffers[6]), *new_m = static_cast<float*>(buffers[7]),
        *new_v = static_cast<float*>(buffers[8]);
  const float lr = *static_cast<const float*>(buffers[4]);
  const double t = static_cast<double>(c.wide_step ? *static_cast<const int64_t*>(buffers[5])
                                                   : *static_cast<const int32_t*>(buffers[5]));
  // Bias corrections start near 0, so they are computed in f64.
  const float size = static_cast<float>(lr / (1 - __builtin_pow(c.beta1, t)));
  const float spread = static_cast<float>(__builtin_sqrt(1 - __builtin_pow(c.beta2, t)));
  const float epsilon = static_cast<float>(c.epsilon), decay = static_cast<float>(c.weight_decay);
  const float keep = 1.0f - lr * decay;
  const float rest1 = static_cast<float>(1 - c.beta1), beta2 = static_cast<float>(c.beta2),
              rest2 = static_cast<float>(1 - c.beta2);
  const bool shrink = c.decoupled && decay != 0, penalise = !c.decoupled && decay != 0;
  const Range r = elements(c, part);
  for (int64_t i = r.begin; i < r.end; i += kWidth) {
    const int64_t n = r.end - i < kWidth ? r.end - i : kWidth;
    vf weight = load_some(w + i, n), gradient = load_some(g + i, n);
    if (penalise) gradient = gradient + decay * weight;
    if (shrink) weight = weight * keep;
    const vf old_m = load_some(m + i, n);
    const vf mean = old_m + (gradient - old_m) * rest1;
    const vf square = load_some(v + i, n) * beta2 + rest2 * (gradient * gradient);
    store_some(new_m + i, mean, n);
    store_some(new_v + i, square, n);
    store_some(new_w + i, weight - size * (mean / (vsqrt(square) / spread + epsilon)), n);
  }
}

}  // namespace harmonics::cpu::HM_ISA
