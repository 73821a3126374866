// Optimizer updates, many tensors per launch, and the global norm, with the operations of the functionals' bodies.
#include "packs.hpp"

namespace harmonics::cuda {
namespace {

__device__ inline double step_number(const void* step, const OptimizerParameters& p) {
  return p.wide_step ? static_cast<double>(*static_cast<const int64_t*>(step))
                     : static_cast<double>(*static_cast<const int32_t*>(step));
}

// Bias corrections start near 0, so they are computed in f64, once per block.
struct Scale {
  float size, spread;
};
__device__ inline Scale scale_of(double lr, const void* step, const OptimizerParameters& p) {
  __shared__ Scale shared;
  if (threadIdx.x % kWarp == 0 && threadIdx.x / kWarp < 2) {  // two warps compute one power each
    const bool is_first = threadIdx.x == 0;
    const double left = 1 - pow(is_first ? p.beta1 : p.beta2, step_number(step, p));
    (is_first ? shared.size : shared.spread) = static_cast<float>(is_first ? lr / left : sqrt(left));
  }
  __syncthreads();
  return shared;
}

// Update rules for one element: w, g, moments ... -> w', moments' ..., in the order of the table.
struct Sgd {
  static constexpr int kTensors = 2;
  float lr, decay;
  __device__ explicit Sgd(const TensorTable& t) : lr(*t.lr), decay(static_cast<float>(t.settings.weight_decay)) {}
  __device__ void step(const float (&in)[kTensors], float (&out)[kTensors - 1]) const {
    const float w = in[0], g = in[1];
    out[0] = w - lr * (decay != 0 ? g + decay * w : g);
  }
};

struct SgdMomentum {
  static constexpr int kTensors = 3;
  float lr, decay, momentum;
  bool nesterov;
  __device__ explicit SgdMomentum(const TensorTable& t)
      : lr(*t.lr),
        decay(static_cast<float>(t.settings.weight_decay)),
        momentum(static_cast<float>(t.settings.momentum)),
        nesterov(t.settings.nesterov) {}
  __device__ void step(const float (&in)[kTensors], float (&out)[kTensors - 1]) const {
    const float w = in[0], g = in[1];
    const float gradient = decay != 0 ? g + decay * w : g, v = momentum * in[2] + gradient;
    out[1] = v;
    out[0] = w - lr * (nesterov ? gradient + momentum * v : v);
  }
};

struct Adam {
  static constexpr int kTensors = 4;
  Scale scale;
  float lr, epsilon, decay, beta2, rest1, rest2;
  bool decoupled;
  __device__ explicit Adam(const TensorTable& t)
      : scale(scale_of(*t.lr, t.step, t.settings)),
        lr(*t.lr),
        epsilon(static_cast<float>(t.settings.epsilon)),
        decay(static_cast<float>(t.settings.weight_decay)),
        beta2(static_cast<float>(t.settings.beta2)),
        rest1(static_cast<float>(1 - t.settings.beta1)),
        rest2(static_cast<float>(1 - t.settings.beta2)),
        decoupled(t.settings.decoupled) {}
  __device__ void step(const float (&in)[kTensors], float (&out)[kTensors - 1]) const {
    float w = in[0], g = in[1];
    const float m = in[2];
    if (decay != 0 && !decoupled) g = g + decay * w;
    if (decay != 0 && decoupled) w = w * (1.0f - lr * decay);
    const float mean = m + (g - m) * rest1;
    const float square = in[3] * beta2 + rest2 * (g * g);
    out[1] = mean;
    out[2] = square;
    out[0] = w - scale.size * (mean / (sqrtf(square) / scale.spread + epsilon));
  }
};

// Moments: v; the velocity if kMoving; the mean if kCentered.
template <bool kMoving, bool kCentered>
struct Rmsprop {
  static constexpr int kTensors = 3 + kMoving + kCentered;
  float lr, epsilon, decay, alpha, rest, momentum;
  __device__ explicit Rmsprop(const TensorTable& t)
      : lr(*t.lr),
        epsilon(static_cast<float>(t.settings.epsilon)),
        decay(static_cast<float>(t.settings.weight_decay)),
        alpha(static_cast<float>(t.settings.alpha)),
        rest(static_cast<float>(1 - t.settings.alpha)),
        momentum(static_cast<float>(t.settings.momentum)) {}
  __device__ void step(const float (&in)[kTensors], float (&out)[kTensors - 1]) const {
    const float w = in[0], g = decay != 0 ? in[1] + decay * w : in[1];
    const float square = alpha * in[2] + rest * (g * g);
    out[1] = square;
    float spread = square;
    if constexpr (kCentered) {
      const float old = in[3 + kMoving], now = old + (g - old) * rest;
      out[2 + kMoving] = now;
      spread = spread - now * now > 0 ? spread - now * now : 0;
    }
    float move = g / (sqrtf(spread) + epsilon);
    if constexpr (kMoving) {
      move = momentum * in[3] + move;
      out[2] = move;
    }
    out[0] = w - lr * move;
  }
};

struct Lion {
  static constexpr int kTensors = 3;
  float lr, decay, beta1, rest1, beta2, rest2;
  __device__ explicit Lion(const TensorTable& t)
      : lr(*t.lr),
        decay(static_cast<float>(t.settings.weight_decay)),
        beta1(static_cast<float>(t.settings.beta1)),
        rest1(static_cast<float>(1 - t.settings.beta1)),
        beta2(static_cast<float>(t.settings.beta2)),
        rest2(static_cast<float>(1 - t.settings.beta2)) {}
  __device__ void step(const float (&in)[kTensors], float (&out)[kTensors - 1]) const {
    const float w = in[0], g = in[1], m = in[2];
    const float mixed = beta1 * m + rest1 * g;
    const float sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : mixed;  // 0 and NaN remain
    out[1] = beta2 * m + rest2 * g;
    out[0] = w * (1.0f - lr * decay) - lr * sign;
  }
};

// Returns the tensor of this block by binary search. The blocks of a tensor are consecutive, in the order of the table.
__device__ inline const TensorRow& row_of_block(const TensorTable& table) {
  uint32_t low = 0, high = table.tensors;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (table.rows[middle].first_block <= blockIdx.x)
      low = middle;
    else
      high = middle;
  }
  return table.rows[low];
}

// A block's range of elements of its tensor.
struct Part {
  uint32_t begin, end;
};
__device__ inline Part part_of_block(const TensorRow& row, uint32_t run) {
  const uint32_t begin = (blockIdx.x - row.first_block) * run;
  return {begin, row.count - begin < run ? row.count : begin + run};
}

// Loads are in flight while the rule is constructed and while the previous results are written.
template <typename Rule>
__global__ void __launch_bounds__(kThreads) update(const __grid_constant__ TensorTable table) {
  constexpr int kTensors = Rule::kTensors;
  if (stays(table.number)) return;
  const TensorRow& row = row_of_block(table);
  const Part part = part_of_block(row, table.settings.run);
  Place at{part.begin + threadIdx.x * 4, 1, part.end};
  Pack<float> before[kTensors];
  // Only the end of a tensor can be an incomplete pack.
  const auto fetch = [&] {
    HM_UNROLL
    for (int i = 0; i < kTensors; ++i) {
      if (at.first + 4 <= part.end) {
        before[i] = *reinterpret_cast<const Pack<float>*>(row.at[i] + at.first);
      } else {
        HM_UNROLL
        for (uint32_t c = 0; c < 4; ++c) before[i].x[c] = at.holds(c) ? row.at[i][at.at(c)] : 0.0f;
      }
    }
  };
  if (at.first < part.end) fetch();
  const Rule rule(table);
  while (at.first < part.end) {
    Pack<float> after[kTensors - 1];
    HM_UNROLL
    for (uint32_t c = 0; c < 4; ++c) {
      float in[kTensors], out[kTensors - 1];
      HM_UNROLL
      for (int i = 0; i < kTensors; ++i) in[i] = before[i].x[c];
      rule.step(in, out);
      HM_UNROLL
      for (int i = 0; i + 1 < kTensors; ++i) after[i].x[c] = out[i];
    }
    HM_UNROLL
    for (int i = 0; i + 1 < kTensors; ++i) {
      float* to = row.at[kTensors + i];
      if (at.first + 4 <= part.end) {
        *reinterpret_cast<Pack<float>*>(to + at.first) = after[i];
      } else {
        HM_UNROLL
        for (uint32_t c = 0; c < 4; ++c)
          if (at.holds(c)) to[at.at(c)] = after[i].x[c];
      }
    }
    at.first += 4 * kThreads;
    if (at.first < part.end) fetch();
  }
}

__global__ void __launch_bounds__(kThreads) squares(const __grid_constant__ TensorTable table) {
  const TensorRow& row = row_of_block(table);
  const Part part = part_of_block(row, kNormRun);
  const float* x = row.at[0] + part.begin;
  const uint32_t n = part.end - part.begin;
  double sum = 0;
  const auto* packs = reinterpret_cast<const Pack<float>*>(x) + threadIdx.x;
  const uint32_t rounds = rounds_of(threadIdx.x, n / 4, kThreads);
  HM_UNROLL_BY(4)
  for (uint32_t i = 0; i < rounds; ++i) {
    const Pack<float> v = packs[i * kThreads];
    HM_UNROLL
    for (uint32_t c = 0; c < 4; ++c) sum += static_cast<double>(v.x[c]) * v.x[c];
  }
  if (const uint32_t i = n / 4 * 4 + threadIdx.x; i < n) sum += static_cast<double>(x[i]) * x[i];
  sum = join_block<Sum>(sum);
  if (threadIdx.x == 0) table.sums[blockIdx.x] = sum;
}
__global__ void __launch_bounds__(kThreads) global_norm(const double* sums, float* norm, GlobalNormParameters p) {
  double sum = 0;
  for (uint32_t i = threadIdx.x; i < p.count; i += kThreads) sum += sums[i];
  sum = join_block<Sum>(sum);
  if (threadIdx.x == 0) *norm = static_cast<float>(sqrt(sum));
}

// Returns LAMB's update direction.
__device__ inline float direction(float w, float m, float v, const Scale& scale, const OptimizerParameters& p) {
  const float d = scale.size * (m / (sqrtf(v) / scale.spread + static_cast<float>(p.epsilon)));
  return p.weight_decay != 0 ? d + static_cast<float>(p.weight_decay) * w : d;
}
__global__ void __launch_bounds__(kThreads)
    lamb_moments(const float* w, const float* g, const float* m, const float* v, const void* step, float* new_m,
                 float* new_v, double* sums, const float* number, OptimizerParameters p) {
  if (stays(number)) return;
  const Scale scale = scale_of(1, step, p);
  double norm = 0, reach = 0;
  for (uint32_t i = thread_number(); i < p.count; i += p.blocks * kThreads) {
    const float gradient = g[i], mean = m[i] + (gradient - m[i]) * static_cast<float>(1 - p.beta1);
    const float square = v[i] * static_cast<float>(p.beta2) + static_cast<float>(1 - p.beta2) * (gradient * gradient);
    new_m[i] = mean;
    new_v[i] = square;
    const double d = direction(w[i], mean, square, scale, p);
    norm += static_cast<double>(w[i]) * w[i];
    reach += d * d;
  }
  norm = join_block<Sum>(norm);
  reach = join_block<Sum>(reach);
  if (threadIdx.x != 0) return;
  sums[2 * blockIdx.x] = norm;
  sums[2 * blockIdx.x + 1] = reach;
}
__global__ void __launch_bounds__(kThreads)
    lamb_step(const float* w, const float* m, const float* v, const float* lr, const void* step, const double* sums,
              float* new_w, const float* number, OptimizerParameters p) {
  if (stays(number)) return;
  const Scale scale = scale_of(1, step, p);
  double norm = 0, reach = 0;
  for (uint32_t b = 0; p.adapts && b < p.blocks; ++b) {
    norm += sums[2 * b];
    reach += sums[2 * b + 1];
  }
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const float rate =
      norm > 0 && reach > 0 ? *lr * (static_cast<float>(sqrt(norm)) / static_cast<float>(sqrt(reach))) : *lr;
  new_w[i] = w[i] - rate * direction(w[i], m[i], v[i], scale, p);
}
}  // namespace

Function update_function(UpdateRule rule) {
  switch (rule) {
    case UpdateRule::sgd:
      return HM_FUNCTION(update<Sgd>);
    case UpdateRule::sgd_momentum:
      return HM_FUNCTION(update<SgdMomentum>);
    case UpdateRule::adam:
      return HM_FUNCTION(update<Adam>);
    case UpdateRule::rmsprop:
      return HM_FUNCTION(update<Rmsprop<false, false>>);
    case UpdateRule::rmsprop_moving:
      return HM_FUNCTION(update<Rmsprop<true, false>>);
    case UpdateRule::rmsprop_centered:
      return HM_FUNCTION(update<Rmsprop<false, true>>);
    case UpdateRule::rmsprop_both:
      return HM_FUNCTION(update<Rmsprop<true, true>>);
    case UpdateRule::lion:
      return HM_FUNCTION(update<Lion>);
  }
  return nullptr;
}
Function lamb_moments_function() { return HM_FUNCTION(lamb_moments); }
Function lamb_step_function() { return HM_FUNCTION(lamb_step); }
Function squares_function() { return HM_FUNCTION(squares); }
Function norm_function() { return HM_FUNCTION(global_norm); }

}  // namespace harmonics::cuda
