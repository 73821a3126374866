// Optimizer steps (RMSProp, LAMB) of one parameter, and the global norm of gradients.
#include "../family.hpp"

#include <cstdint>

namespace harmonics::cpu {
namespace {

struct RmspropContext {
  int64_t count;
  uint32_t parts;
  bool has_velocity, centered;
  double alpha, epsilon, momentum, weight_decay;
};

// `adapt`: two phases: moments, and squared norms of w and of the update direction per part; then the update.
struct LambContext {
  int64_t count;
  uint32_t parts;
  bool adapt, wide_step;  // wide_step: the step number is i64, else i32
  double beta1, beta2, epsilon, weight_decay;
};

// Global norm. Phases: sums of squares of blocks of all tensors; square root of the total.
struct NormBlock {
  uint32_t tensor;
  int64_t begin, count;
};
struct GlobalNormContext {
  uint32_t parts, tensors;
  int64_t count;
  const NormBlock* blocks;
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Returns the elements of a part, whole vectors.
HM_INLINE Range elements(int64_t count, uint32_t parts, uint32_t part) {
  const Range vectors = share((count + kWidth - 1) / kWidth, parts, part);
  return {vectors.begin * kWidth, vectors.end * kWidth < count ? vectors.end * kWidth : count};
}
HM_INLINE const float* in(void* const* buffers, uint32_t i) { return static_cast<const float*>(buffers[i]); }
HM_INLINE float* out(void* const* buffers, uint32_t i) { return static_cast<float*>(buffers[i]); }

template <bool kMoving, bool kCentered>
void rmsprop_part(const RmspropContext& c, void* const* buffers, uint32_t part) {
  constexpr uint32_t kMean = 3 + kMoving, kLr = kMean + kCentered, kOut = kLr + 1;
  const float *w = in(buffers, 0), *g = in(buffers, 1), *v = in(buffers, 2);
  const float *velocity = kMoving ? in(buffers, 3) : nullptr, *mean = kCentered ? in(buffers, kMean) : nullptr;
  const float lr = *in(buffers, kLr);
  float *new_w = out(buffers, kOut), *new_v = out(buffers, kOut + 1);
  float *new_velocity = kMoving ? out(buffers, kOut + 2) : nullptr,
        *new_mean = kCentered ? out(buffers, kOut + 2 + kMoving) : nullptr;
  const float alpha = static_cast<float>(c.alpha), rest = static_cast<float>(1 - c.alpha);
  const float epsilon = static_cast<float>(c.epsilon), momentum = static_cast<float>(c.momentum),
              decay = static_cast<float>(c.weight_decay);
  const Range r = elements(c.count, c.parts, part);
  for (int64_t i = r.begin; i < r.end; i += kWidth) {
    const int64_t n = lanes_at(i, r.end);
    const vf weight = load_some(w + i, n);
    vf gradient = load_some(g + i, n);
    if (decay != 0) gradient = gradient + decay * weight;
    const vf square = alpha * load_some(v + i, n) + rest * (gradient * gradient);
    store_some(new_v + i, square, n);
    vf spread = square;
    if (kCentered) {
      const vf old = load_some(mean + i, n), now = old + (gradient - old) * rest;
      store_some(new_mean + i, now, n);
      spread = maximum(spread - now * now, splat(0));
    }
    vf step = gradient / (vsqrt(spread) + epsilon);
    if (kMoving) {
      step = momentum * load_some(velocity + i, n) + step;
      store_some(new_velocity + i, step, n);
    }
    store_some(new_w + i, weight - lr * step, n);
  }
}

struct AdamScale {
  float size, spread, epsilon, decay;
  // Returns LAMB's update direction.
  HM_INLINE vf direction(vf m, vf v, vf w) const {
    const vf d = size * (m / (vsqrt(v) / spread + epsilon));
    return decay != 0 ? d + decay * w : d;
  }
};

HM_INLINE AdamScale scale_of(const LambContext& c, const void* step) {
  const double t =
      static_cast<double>(c.wide_step ? *static_cast<const int64_t*>(step) : *static_cast<const int32_t*>(step));
  // Bias corrections start near 0, so they are computed in f64.
  return {static_cast<float>(1 / (1 - __builtin_pow(c.beta1, t))),
          static_cast<float>(__builtin_sqrt(1 - __builtin_pow(c.beta2, t))), static_cast<float>(c.epsilon),
          static_cast<float>(c.weight_decay)};
}

// Squares of this many elements are summed in f32; the sums are added in f64.
constexpr int64_t kRun = 4096;

}  // namespace

// w, g, v, [velocity], [mean], lr -> w, v, [velocity], [mean]
void rmsprop(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const RmspropContext*>(context);
  if (c.has_velocity)
    c.centered ? rmsprop_part<true, true>(c, buffers, part) : rmsprop_part<true, false>(c, buffers, part);
  else
    c.centered ? rmsprop_part<false, true>(c, buffers, part) : rmsprop_part<false, false>(c, buffers, part);
}

// w, g, m, v, lr, step -> w, m, v
void lamb(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const LambContext*>(context);
  const float *w = in(buffers, 0), *g = in(buffers, 1);
  float *new_w = out(buffers, 6), *new_m = out(buffers, 7), *new_v = out(buffers, 8);
  double* sums = static_cast<double*>(buffers[9]);
  const AdamScale scale = scale_of(c, buffers[5]);
  const float rest1 = static_cast<float>(1 - c.beta1), beta2 = static_cast<float>(c.beta2),
              rest2 = static_cast<float>(1 - c.beta2);
  float lr = *in(buffers, 4);
  const Range r = elements(c.count, c.parts, part);
  if (phase == 1) {
    double length = 0, reach = 0;
    for (uint32_t p = 0; p < c.parts; ++p) length += sums[2 * p], reach += sums[2 * p + 1];
    if (length > 0 && reach > 0)
      lr *= static_cast<float>(__builtin_sqrt(length)) / static_cast<float>(__builtin_sqrt(reach));
    for (int64_t i = r.begin; i < r.end; i += kWidth) {
      const int64_t n = lanes_at(i, r.end);
      const vf weight = load_some(w + i, n);
      store_some(new_w + i, weight - lr * scale.direction(load_some(new_m + i, n), load_some(new_v + i, n), weight), n);
    }
    return;
  }
  const float *m = in(buffers, 2), *v = in(buffers, 3);
  double length = 0, reach = 0;
  for (int64_t run = r.begin; run < r.end; run += kRun) {
    const int64_t end = r.end - run < kRun ? r.end : run + kRun;
    vf length_run = splat(0), reach_run = splat(0);
    for (int64_t i = run; i < end; i += kWidth) {
      const int64_t n = lanes_at(i, end);
      const vf weight = load_some(w + i, n), gradient = load_some(g + i, n), old = load_some(m + i, n);
      const vf mean = old + (gradient - old) * rest1;
      const vf square = load_some(v + i, n) * beta2 + rest2 * (gradient * gradient);
      store_some(new_m + i, mean, n);
      store_some(new_v + i, square, n);
      const vf d = scale.direction(mean, square, weight);
      if (!c.adapt) {
        store_some(new_w + i, weight - lr * d, n);
        continue;
      }
      length_run = length_run + weight * weight;
      reach_run = reach_run + first(d * d, n, splat(0));
    }
    length += static_cast<double>(sum_of(length_run));
    reach += static_cast<double>(sum_of(reach_run));
  }
  if (c.adapt) sums[2 * part] = length, sums[2 * part + 1] = reach;
}

// x... -> norm
void global_norm(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const GlobalNormContext*>(context);
  double* sums = static_cast<double*>(buffers[c.tensors + 1]);
  if (phase == 1) {
    double total = 0;
    for (int64_t b = 0; b < c.count; ++b) total += sums[b];
    *out(buffers, c.tensors) = static_cast<float>(__builtin_sqrt(total));
    return;
  }
  const Range r = share(c.count, c.parts, part);
  for (int64_t b = r.begin; b < r.end; ++b) {
    const NormBlock& block = c.blocks[b];
    const float* x = in(buffers, block.tensor) + block.begin;
    vf sum[4] = {splat(0), splat(0), splat(0), splat(0)};
    int64_t i = 0;
    for (; i + 4 * kWidth <= block.count; i += 4 * kWidth)
      for (int k = 0; k < 4; ++k) {
        const vf v = load(x + i + k * kWidth);
        sum[k] = fma(v, v, sum[k]);
      }
    for (; i < block.count; i += kWidth) {
      const vf v = load_some(x + i, lanes_at(i, block.count));
      sum[0] = fma(v, v, sum[0]);
    }
    sums[b] = static_cast<double>(sum_of((sum[0] + sum[1]) + (sum[2] + sum[3])));
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

HM_VECTOR_CODE(rmsprop)
HM_VECTOR_CODE(lamb)
HM_VECTOR_CODE(global_norm)

namespace harmonics::cpu {
namespace {

// The first `tensors` inputs have the same type, followed by lr and (with_step) the step number.
bool is_update(const Site& site, uint32_t tensors, bool with_step) {
  if (site.inputs() != tensors + 1 + with_step) return false;
  for (uint32_t i = 0; i < tensors; ++i)
    if (!is_f32(site.in(i)) || !same_shape(site.in(i), site.in(0))) return false;
  if (!is_f32(site.in(tensors)) || count(site.in(tensors)) != 1) return false;
  return !with_step || site.in(tensors + 1).dtype == HX_I64 || site.in(tensors + 1).dtype == HX_I32;
}

template <typename Context>
std::unique_ptr<Context> context_for(const Site& site, double nanoseconds) {
  auto c = std::make_unique<Context>();
  c->count = count(site.in(0));
  c->weight_decay = site.number("weight_decay");
  c->parts = parts_for(static_cast<double>(c->count) * nanoseconds, (c->count + 63) / 64);
  return c;
}

// Besides in_place (w' = w), the other outputs may share the memory of the moments they replace.
bool plan_rmsprop(const Site& site, hx_kernel& out) {
  const bool moving = site.number("momentum") != 0, centered = site.flag("centered");
  if (!is_update(site, 3u + moving + centered, false)) return false;
  auto c = context_for<RmspropContext>(site, 0.6);
  c->has_velocity = moving;
  c->centered = centered;
  c->alpha = site.number("alpha", 0.99);
  c->epsilon = site.number("epsilon", 1e-8);
  c->momentum = site.number("momentum");
  answer(out, std::move(c), chosen::rmsprop(), "rmsprop").in_place = 1;
  return true;
}

bool plan_lamb(const Site& site, hx_kernel& out) {
  if (!is_update(site, 4, true)) return false;
  auto c = context_for<LambContext>(site, 0.8);
  c->parts = std::min(c->parts, kMostSums);
  c->adapt = site.integer("adapt", 1) != 0;
  c->wide_step = site.in(5).dtype == HX_I64;
  c->beta1 = site.number("beta1", 0.9);
  c->beta2 = site.number("beta2", 0.999);
  c->epsilon = site.number("epsilon", 1e-6);
  const uint32_t parts = c->parts;
  const bool adapt = c->adapt;
  hx_kernel& kernel =
      answer(out, std::move(c), chosen::lamb(), "lamb", adapt ? std::vector{parts, parts} : std::vector{parts});
  kernel.workspace = adapt ? parts * 2 * sizeof(double) : 0;
  kernel.in_place = 1;
  return true;
}

struct GlobalNorm : GlobalNormContext {
  std::vector<NormBlock> storage;
};

bool plan_global_norm(const Site& site, hx_kernel& out) {
  constexpr int64_t kBlock = 8192;
  if (!site.all_f32()) return false;
  auto c = std::make_unique<GlobalNorm>();
  double elements = 0;
  for (uint32_t t = 0; t < site.inputs(); ++t) {
    const int64_t n = count(site.in(t));
    elements += static_cast<double>(n);
    for (int64_t at = 0; at < n; at += kBlock) c->storage.push_back({t, at, std::min(kBlock, n - at)});
  }
  c->tensors = site.inputs();
  c->count = static_cast<int64_t>(c->storage.size());
  c->blocks = c->storage.data();
  c->parts = parts_for(elements * 0.1, c->count);
  const std::vector<uint32_t> parts{c->parts, 1};
  const uint64_t workspace = c->storage.size() * sizeof(double);
  answer<GlobalNormContext>(out, std::move(c), chosen::global_norm(), "global norm", parts).workspace = workspace;
  return true;
}

}  // namespace

HM_PLANS(updates, {"rmsprop", plan_rmsprop}, {"lamb", plan_lamb}, {"global_norm", plan_global_norm})

}  // namespace harmonics::cpu

#endif
