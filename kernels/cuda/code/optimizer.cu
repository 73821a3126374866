// One step of one parameter, and the length of all gradients together. Formulas are those of the functionals' bodies.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

using Pointer = float*;

__device__ inline double step_number(const void* step, const OptimizerParameters& p) {
  return p.wide_step ? static_cast<double>(*static_cast<const int64_t*>(step)) : static_cast<double>(*static_cast<const int32_t*>(step));
}

__global__ void sgd(const float* w, const float* g, const float* lr, float* new_w, OptimizerParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const float decay = static_cast<float>(p.weight_decay);
  new_w[i] = w[i] - *lr * (decay != 0 ? g[i] + decay * w[i] : g[i]);
}

__global__ void sgd_momentum(const float* w, const float* g, const float* velocity, const float* lr, float* new_w, float* new_velocity, OptimizerParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const float decay = static_cast<float>(p.weight_decay), momentum = static_cast<float>(p.momentum), weight = w[i];
  const float slope = decay != 0 ? g[i] + decay * weight : g[i], v = momentum * velocity[i] + slope;
  new_velocity[i] = v;
  new_w[i] = weight - *lr * (p.nesterov ? slope + momentum * v : v);
}

// The corrections start near 0: in f64 they keep all digits. The first thread of a block computes them for all.
struct Scale {
  float size, spread;
};
__device__ inline Scale scale_of(double lr, const void* step, const OptimizerParameters& p) {
  __shared__ Scale shared;
  if (threadIdx.x == 0) {
    const double t = step_number(step, p);
    shared.size = static_cast<float>(lr / (1 - pow(p.beta1, t)));
    shared.spread = static_cast<float>(sqrt(1 - pow(p.beta2, t)));
  }
  __syncthreads();
  return shared;
}

__global__ void __launch_bounds__(kThreads) adam(const float* w, const float* g, const float* m, const float* v, const float* lr, const void* step, float* new_w,
                                                 float* new_m, float* new_v, OptimizerParameters p) {
  const Scale scale = scale_of(*lr, step, p);
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const float epsilon = static_cast<float>(p.epsilon), decay = static_cast<float>(p.weight_decay);
  float weight = w[i], gradient = g[i];
  if (decay != 0 && !p.decoupled) gradient = gradient + decay * weight;
  if (decay != 0 && p.decoupled) weight = weight * (1.0f - *lr * decay);
  const float mean = m[i] + (gradient - m[i]) * static_cast<float>(1 - p.beta1);
  const float square = v[i] * static_cast<float>(p.beta2) + static_cast<float>(1 - p.beta2) * (gradient * gradient);
  new_m[i] = mean;
  new_v[i] = square;
  new_w[i] = weight - scale.size * (mean / (sqrtf(square) / scale.spread + epsilon));
}

struct RmspropState {
  const float *w, *g, *v, *velocity, *mean, *lr;
  float *new_w, *new_v, *new_velocity, *new_mean;
};
__device__ inline void rmsprop_step(const RmspropState& s, const OptimizerParameters& p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const float alpha = static_cast<float>(p.alpha), rest = static_cast<float>(1 - p.alpha), decay = static_cast<float>(p.weight_decay), weight = s.w[i];
  const float gradient = decay != 0 ? s.g[i] + decay * weight : s.g[i];
  const float square = alpha * s.v[i] + rest * (gradient * gradient);
  s.new_v[i] = square;
  float spread = square;
  if (s.mean) {
    const float now = s.mean[i] + (gradient - s.mean[i]) * rest;
    s.new_mean[i] = now;
    spread = spread - now * now > 0 ? spread - now * now : 0;
  }
  float step = gradient / (sqrtf(spread) + static_cast<float>(p.epsilon));
  if (s.velocity) {
    step = static_cast<float>(p.momentum) * s.velocity[i] + step;
    s.new_velocity[i] = step;
  }
  s.new_w[i] = weight - *s.lr * step;
}
__global__ void rmsprop(const float* w, const float* g, const float* v, const float* lr, Pointer new_w, Pointer new_v, OptimizerParameters p) {
  rmsprop_step({w, g, v, nullptr, nullptr, lr, new_w, new_v, nullptr, nullptr}, p);
}
__global__ void rmsprop_moving(const float* w, const float* g, const float* v, const float* velocity, const float* lr, Pointer new_w, Pointer new_v,
                               Pointer new_velocity, OptimizerParameters p) {
  rmsprop_step({w, g, v, velocity, nullptr, lr, new_w, new_v, new_velocity, nullptr}, p);
}
__global__ void rmsprop_centered(const float* w, const float* g, const float* v, const float* mean, const float* lr, Pointer new_w, Pointer new_v, Pointer new_mean,
                                 OptimizerParameters p) {
  rmsprop_step({w, g, v, nullptr, mean, lr, new_w, new_v, nullptr, new_mean}, p);
}
__global__ void rmsprop_both(const float* w, const float* g, const float* v, const float* velocity, const float* mean, const float* lr, Pointer new_w, Pointer new_v,
                             Pointer new_velocity, Pointer new_mean, OptimizerParameters p) {
  rmsprop_step({w, g, v, velocity, mean, lr, new_w, new_v, new_velocity, new_mean}, p);
}

__global__ void lion(const float* w, const float* g, const float* m, const float* lr, float* new_w, float* new_m, OptimizerParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const float gradient = g[i], old = m[i], rate = *lr;
  const float mixed = static_cast<float>(p.beta1) * old + static_cast<float>(1 - p.beta1) * gradient;
  const float sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : mixed;  // of 0 and NaN the mixture itself
  new_m[i] = static_cast<float>(p.beta2) * old + static_cast<float>(1 - p.beta2) * gradient;
  new_w[i] = w[i] * (1.0f - rate * static_cast<float>(p.weight_decay)) - rate * sign;
}

// What LAMB moves w along.
__device__ inline float direction(float w, float m, float v, const Scale& scale, const OptimizerParameters& p) {
  const float d = scale.size * (m / (sqrtf(v) / scale.spread + static_cast<float>(p.epsilon)));
  return p.weight_decay != 0 ? d + static_cast<float>(p.weight_decay) * w : d;
}
__global__ void __launch_bounds__(kThreads) lamb_moments(const float* w, const float* g, const float* m, const float* v, const void* step, float* new_m, float* new_v,
                                                         double* sums, OptimizerParameters p) {
  const Scale scale = scale_of(1, step, p);
  double length = 0, reach = 0;
  for (uint32_t i = thread_number(); i < p.count; i += p.blocks * kThreads) {
    const float gradient = g[i], mean = m[i] + (gradient - m[i]) * static_cast<float>(1 - p.beta1);
    const float square = v[i] * static_cast<float>(p.beta2) + static_cast<float>(1 - p.beta2) * (gradient * gradient);
    new_m[i] = mean;
    new_v[i] = square;
    const double d = direction(w[i], mean, square, scale, p);
    length += static_cast<double>(w[i]) * w[i];
    reach += d * d;
  }
  length = join_block<Sum>(length);
  reach = join_block<Sum>(reach);
  if (threadIdx.x != 0) return;
  sums[2 * blockIdx.x] = length;
  sums[2 * blockIdx.x + 1] = reach;
}
__global__ void __launch_bounds__(kThreads) lamb_step(const float* w, const float* m, const float* v, const float* lr, const void* step, const double* sums,
                                                      float* new_w, OptimizerParameters p) {
  const Scale scale = scale_of(1, step, p);
  double length = 0, reach = 0;
  for (uint32_t b = 0; b < p.blocks; ++b) {
    length += sums[2 * b];
    reach += sums[2 * b + 1];
  }
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const float rate = length > 0 && reach > 0 ? *lr * (static_cast<float>(sqrt(length)) / static_cast<float>(sqrt(reach))) : *lr;
  new_w[i] = w[i] - rate * direction(w[i], m[i], v[i], scale, p);
}

__global__ void __launch_bounds__(kThreads) squares(const float* x, double* sums, LengthParameters p) {
  double sum = 0;
  const uint32_t begin = blockIdx.x * kNormRun, end = p.count - begin < kNormRun ? p.count : begin + kNormRun;
  for (uint32_t i = begin + threadIdx.x; i < end; i += kThreads) sum += static_cast<double>(x[i]) * x[i];
  sum = join_block<Sum>(sum);
  if (threadIdx.x == 0) sums[p.first + blockIdx.x] = sum;
}
__global__ void __launch_bounds__(kThreads) length(const double* sums, float* norm, LengthParameters p) {
  double sum = 0;
  for (uint32_t i = threadIdx.x; i < p.count; i += kThreads) sum += sums[i];
  sum = join_block<Sum>(sum);
  if (threadIdx.x == 0) *norm = static_cast<float>(sqrt(sum));
}

}  // namespace

Function sgd_function() { return HM_FUNCTION(sgd); }
Function sgd_momentum_function() { return HM_FUNCTION(sgd_momentum); }
Function adam_function() { return HM_FUNCTION(adam); }
Function rmsprop_function(bool moving, bool centered) {
  if (moving) return centered ? HM_FUNCTION(rmsprop_both) : HM_FUNCTION(rmsprop_moving);
  return centered ? HM_FUNCTION(rmsprop_centered) : HM_FUNCTION(rmsprop);
}
Function lion_function() { return HM_FUNCTION(lion); }
Function lamb_moments_function() { return HM_FUNCTION(lamb_moments); }
Function lamb_step_function() { return HM_FUNCTION(lamb_step); }
Function squares_function() { return HM_FUNCTION(squares); }
Function length_function() { return HM_FUNCTION(length); }

}  // namespace harmonics::cuda
