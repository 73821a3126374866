#include "../norm.hpp"

#include "kernels.hpp"
#include "row_sum.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// f(offset in the row, lanes, gain, bias) for the vectors of a row, which is one group of one sample. Gain and bias are
// per channel; with one position per channel they vary from lane to lane.
template <typename F>
HM_INLINE void each_vector(const GroupNormContext& c, const float* gain, const float* bias, F f) {
  if (c.places == 1) {
    for (int64_t i = 0; i < c.channels; i += kWidth) {
      const int64_t k = lanes_at(i, c.channels);
      f(i, k, load_some(gain + i, k), load_some(bias + i, k));
    }
    return;
  }
  for (int64_t channel = 0; channel < c.channels; ++channel)
    for (int64_t i = 0; i < c.places; i += kWidth)
      f(channel * c.places + i, lanes_at(i, c.places), splat(gain[channel]), splat(bias[channel]));
}

// Per channel of a row: the sum of dy, and of dy times normalised x.
HM_INLINE void channel_sums(const GroupNormContext& c, const float* x, const float* dy, float mean, float rstd,
                            float* sum, float* product) {
  if (c.places == 1) {
    for (int64_t i = 0; i < c.channels; i += kWidth) {
      const int64_t k = lanes_at(i, c.channels);
      const vf d = load_some(dy + i, k);
      store_some(sum + i, d, k);
      store_some(product + i, d * ((load_some(x + i, k) - mean) * rstd), k);
    }
    return;
  }
  for (int64_t channel = 0; channel < c.channels; ++channel, x += c.places, dy += c.places) {
    sum[channel] = sum_row(c.places, [&](int64_t i, int64_t k) { return load_some(dy + i, k); });
    product[channel] = sum_row(
        c.places, [&](int64_t i, int64_t k) { return load_some(dy + i, k) * ((load_some(x + i, k) - mean) * rstd); });
  }
}

}  // namespace

// x, gain, bias -> y, mean, rstd
void group_norm(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const GroupNormContext*>(context);
  const float *gain = static_cast<const float*>(buffers[1]), *bias = static_cast<const float*>(buffers[2]);
  float *means = static_cast<float*>(buffers[4]), *rstds = static_cast<float*>(buffers[5]);
  const int64_t n = c.channels * c.places;
  const float one_share = 1.0f / static_cast<float>(n);
  const Range rows = share(c.batch * c.groups, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* x = static_cast<const float*>(buffers[0]) + r * n;
    float* y = static_cast<float*>(buffers[3]) + r * n;
    const float mean = sum_row(n, [&](int64_t i, int64_t k) { return load_some(x + i, k); }) * one_share;
    const Spread s = spread_of_row(n, one_share, c.epsilon,
                                   [&](int64_t i, int64_t k) { return first(load_some(x + i, k) - mean, k, vf{}); });
    const int64_t own = r % c.groups * c.channels;
    each_vector(c, gain + own, bias + own, [&](int64_t i, int64_t k, vf g, vf b) {
      store_some(y + i, s.unit(load_some(x + i, k) - mean) * g + b, k);
    });
    means[r] = mean + s.rest;
    rstds[r] = s.rstd;
  }
}

// x, gain, mean, rstd, dy -> dx, dgain, dbias. Phase 0: dx, and each sample's sums by channel (of dy, of dy times
// normalised x) in the workspace; phase 1 adds them up.
void group_norm_grad(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const GroupNormContext*>(context);
  const int64_t n = c.channels * c.places, all = c.groups * c.channels;
  float *sums = static_cast<float*>(buffers[8]), *products = sums + c.batch * all;
  if (phase == 1) {
    const Range vectors = share((all + kWidth - 1) / kWidth, c.channel_parts, part);
    for (int64_t i = vectors.begin * kWidth; i < vectors.end * kWidth; i += kWidth) {
      const int64_t k = lanes_at(i, all);
      vf dbias{}, dgain{};
      for (int64_t b = 0; b < c.batch; ++b) {
        dbias += load_some(sums + b * all + i, k);
        dgain += load_some(products + b * all + i, k);
      }
      store_some(static_cast<float*>(buffers[6]) + i, dgain, k);
      store_some(static_cast<float*>(buffers[7]) + i, dbias, k);
    }
    return;
  }
  const Range rows = share(c.batch * c.groups, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float *x = static_cast<const float*>(buffers[0]) + r * n, *dy = static_cast<const float*>(buffers[4]) + r * n;
    const float* gain = static_cast<const float*>(buffers[1]) + r % c.groups * c.channels;
    const float mean = static_cast<const float*>(buffers[2])[r], rstd = static_cast<const float*>(buffers[3])[r];
    float *sum = sums + r * c.channels, *product = products + r * c.channels;
    channel_sums(c, x, dy, mean, rstd, sum, product);
    const float scale = 1.0f / static_cast<float>(n);
    const auto weighted = [&](const float* by_channel) {
      return sum_row(c.channels,
                     [&](int64_t i, int64_t k) { return load_some(gain + i, k) * load_some(by_channel + i, k); }) *
             scale;
    };
    const float along = weighted(sum), across = weighted(product);
    float* dx = static_cast<float*>(buffers[5]) + r * n;
    each_vector(c, gain, gain, [&](int64_t i, int64_t k, vf g, vf) {
      const vf unit = (load_some(x + i, k) - mean) * rstd;
      store_some(dx + i, rstd * (g * load_some(dy + i, k) - along - unit * across), k);
    });
  }
}

}  // namespace harmonics::cpu::HM_ISA
