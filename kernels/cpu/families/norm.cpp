// Normalisation over rows (layer_norm, rms_norm), over batch and space (batch_norm), over groups of channels
// (group_norm).
#include "../family.hpp"

#include <cstdint>

namespace harmonics::cpu {
namespace {

struct NormContext {
  int64_t rows, columns;
  uint32_t parts;
  bool centred;           // layer_norm; else rms_norm
  uint32_t column_parts;  // gradient: parts of the second phase, which adds the sums of the parts
  float epsilon;
};

struct BatchNormContext {
  int64_t batch, channels, places;
  uint32_t parts;
  float epsilon;
};

struct GroupNormContext {
  int64_t batch, groups, channels, places;  // channels: per group
  uint32_t parts;
  uint32_t channel_parts;  // gradient: parts of the second phase, which adds the sums of the samples
  float epsilon;
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "row_sum.hpp"

namespace harmonics::cpu::HM_ISA {

// x, gain, [bias] -> y, [mean], rstd
void row_norm(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const NormContext*>(context);
  const uint32_t outputs = c.centred ? 3 : 2;
  const float *gain = static_cast<const float*>(buffers[1]),
              *bias = c.centred ? static_cast<const float*>(buffers[2]) : nullptr;
  float* mean_out = c.centred ? static_cast<float*>(buffers[4]) : nullptr;
  float* rstd_out = static_cast<float*>(buffers[c.centred ? 5 : 3]);
  const int64_t n = c.columns;
  const float one_share = 1.0f / static_cast<float>(n);
  const Range rows = share(c.rows, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* x = static_cast<const float*>(buffers[0]) + r * n;
    float* y = static_cast<float*>(buffers[outputs]) + r * n;
    if (!c.centred) {
      const auto square = [&](int64_t i, int64_t k) {
        const vf v = load_some(x + i, k);
        return v * v;
      };
      const float rstd = 1.0f / scalar_sqrt(sum_row(n, square) * one_share + c.epsilon);
      for (int64_t i = 0; i < n; i += kWidth) {
        const int64_t k = lanes_at(i, n);
        store_some(y + i, load_some(x + i, k) * rstd * load_some(gain + i, k), k);
      }
      rstd_out[r] = rstd;
      continue;
    }
    if (n <= kWidth) {  // one vector
      const vf v = load_some(x, n);
      const float mean = sum_of(v) * one_share;
      const vf d = first(v - mean, n, vf{});
      const Spread s(d, d * d, one_share, c.epsilon);
      store_some(y, s.unit(d) * load_some(gain, n) + load_some(bias, n), n);
      mean_out[r] = mean + s.rest;
      rstd_out[r] = s.rstd;
      continue;
    }
    const float mean = sum_row(n, [&](int64_t i, int64_t k) { return load_some(x + i, k); }) * one_share;
    const Spread s = spread_of_row(n, one_share, c.epsilon,
                                   [&](int64_t i, int64_t k) { return first(load_some(x + i, k) - mean, k, vf{}); });
    for (int64_t i = 0; i < n; i += kWidth) {
      const int64_t k = lanes_at(i, n);
      store_some(y + i, s.unit(load_some(x + i, k) - mean) * load_some(gain + i, k) + load_some(bias + i, k), k);
    }
    mean_out[r] = mean + s.rest;
    rstd_out[r] = s.rstd;
  }
}

// x, gain, [mean], rstd, dy -> dx, dgain, [dbias]. Phase 0: dx, and the sums of each part in the workspace. Phase 1:
// adds these sums.
void row_norm_grad(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const NormContext*>(context);
  const uint32_t inputs = c.centred ? 5 : 4, sums = c.centred ? 2 : 1;
  const int64_t n = c.columns;
  float* workspace = static_cast<float*>(buffers[inputs + sums + 1]);
  if (phase == 1) {
    const Range vectors = share((n + kWidth - 1) / kWidth, c.column_parts, part);
    for (uint32_t s = 0; s < sums; ++s)
      for (int64_t v = vectors.begin; v < vectors.end; ++v) {
        const int64_t k = lanes_at(v * kWidth, n);
        vf total{};
        for (uint32_t p = 0; p < c.parts; ++p) total += load_some(workspace + (p * sums + s) * n + v * kWidth, k);
        store_some(static_cast<float*>(buffers[inputs + 1 + s]) + v * kWidth, total, k);
      }
    return;
  }
  const float* gain = static_cast<const float*>(buffers[1]);
  const float* means = c.centred ? static_cast<const float*>(buffers[2]) : nullptr;
  const float* rstds = static_cast<const float*>(buffers[c.centred ? 3 : 2]);
  float *dgain = workspace + part * sums * n, *dbias = c.centred ? dgain + n : nullptr;
  for (int64_t i = 0; i < n * sums; ++i) dgain[i] = 0;
  const Range rows = share(c.rows, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* x = static_cast<const float*>(buffers[0]) + r * n;
    const float* dy = static_cast<const float*>(buffers[c.centred ? 4 : 3]) + r * n;
    float* dx = static_cast<float*>(buffers[inputs]) + r * n;
    const float mean = c.centred ? means[r] : 0.0f, rstd = rstds[r], count = static_cast<float>(n);
    vf sum{}, product{};
    for (int64_t i = 0; i < n; i += kWidth) {
      const int64_t k = lanes_at(i, n);
      const vf d = load_some(dy + i, k), unit = (load_some(x + i, k) - mean) * rstd, dunit = d * load_some(gain + i, k);
      sum += dunit;
      product += first(dunit * unit, k, vf{});
      store_some(dgain + i, load_some(dgain + i, k) + d * unit, k);
      if (dbias) store_some(dbias + i, load_some(dbias + i, k) + d, k);
    }
    const float along = c.centred ? sum_of(sum) / count : 0.0f, across = sum_of(product) / count;
    for (int64_t i = 0; i < n; i += kWidth) {
      const int64_t k = lanes_at(i, n);
      const vf unit = (load_some(x + i, k) - mean) * rstd, dunit = load_some(dy + i, k) * load_some(gain + i, k);
      store_some(dx + i, rstd * (dunit - along - unit * across), k);
    }
  }
}

namespace {

// Calls f(offset, lanes) for every vector of a channel.
template <typename F>
HM_INLINE void for_channel(const BatchNormContext& c, int64_t channel, F f) {
  for (int64_t b = 0; b < c.batch; ++b) {
    const int64_t start = (b * c.channels + channel) * c.places;
    for (int64_t i = 0; i < c.places; i += kWidth) f(start + i, lanes_at(i, c.places));
  }
}
// Returns the sum over a channel, plane by plane.
template <typename F>
HM_INLINE float sum_channel(const BatchNormContext& c, int64_t channel, F f) {
  vf total{};
  for (int64_t b = 0; b < c.batch; ++b) {
    const int64_t start = (b * c.channels + channel) * c.places;
    vf sum{};
    for (int64_t i = 0; i < c.places; i += kWidth) sum += f(start + i, lanes_at(i, c.places));
    total += sum;
  }
  return sum_of(total);
}

// Returns the statistics of a channel's values around `mean`.
HM_INLINE Spread spread_of_channel(const BatchNormContext& c, int64_t channel, const float* x, float mean) {
  const float one_share = 1.0f / static_cast<float>(c.batch * c.places);
  vf total{}, totals{};
  for (int64_t b = 0; b < c.batch; ++b) {
    const float* plane = x + (b * c.channels + channel) * c.places;
    vf sum{}, squares{};
    for (int64_t i = 0; i < c.places; i += kWidth) {
      const int64_t k = lanes_at(i, c.places);
      const vf d = first(load_some(plane + i, k) - mean, k, vf{});
      sum += d;
      squares = fma(d, d, squares);
    }
    total += sum;
    totals += squares;
  }
  return {total, totals, one_share, c.epsilon};
}

}  // namespace

// x, gain, bias -> y, mean, rstd. For one position per channel, where channels are contiguous, see batch_norm_columns.
void batch_norm(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const BatchNormContext*>(context);
  const float *x = static_cast<const float*>(buffers[0]), *gain = static_cast<const float*>(buffers[1]),
              *bias = static_cast<const float*>(buffers[2]);
  float *y = static_cast<float*>(buffers[3]), *means = static_cast<float*>(buffers[4]),
        *rstds = static_cast<float*>(buffers[5]);
  const float count = static_cast<float>(c.batch * c.places);
  const Range channels = share(c.channels, c.parts, part);
  for (int64_t ch = channels.begin; ch < channels.end; ++ch) {
    const float mean = sum_channel(c, ch, [&](int64_t i, int64_t k) { return load_some(x + i, k); }) / count;
    const Spread s = spread_of_channel(c, ch, x, mean);
    for_channel(c, ch, [&](int64_t i, int64_t k) {
      store_some(y + i, s.unit(load_some(x + i, k) - mean) * gain[ch] + bias[ch], k);
    });
    means[ch] = mean + s.rest;
    rstds[ch] = s.rstd;
  }
}

// x, gain, mean, rstd, dy -> dx, dgain, dbias
void batch_norm_grad(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const BatchNormContext*>(context);
  const float *x = static_cast<const float*>(buffers[0]), *gain = static_cast<const float*>(buffers[1]);
  const float *means = static_cast<const float*>(buffers[2]), *rstds = static_cast<const float*>(buffers[3]),
              *dy = static_cast<const float*>(buffers[4]);
  float *dx = static_cast<float*>(buffers[5]), *dgain = static_cast<float*>(buffers[6]),
        *dbias = static_cast<float*>(buffers[7]);
  const float count = static_cast<float>(c.batch * c.places);
  const Range channels = share(c.channels, c.parts, part);
  for (int64_t ch = channels.begin; ch < channels.end; ++ch) {
    const float mean = means[ch], rstd = rstds[ch];
    dbias[ch] = sum_channel(c, ch, [&](int64_t i, int64_t k) { return load_some(dy + i, k); });
    dgain[ch] = sum_channel(c, ch, [&](int64_t i, int64_t k) {
      return first(load_some(dy + i, k) * ((load_some(x + i, k) - mean) * rstd), k, vf{});
    });
    const float along = gain[ch] * dbias[ch] / count, across = gain[ch] * dgain[ch] / count;
    for_channel(c, ch, [&](int64_t i, int64_t k) {
      const vf unit = (load_some(x + i, k) - mean) * rstd;
      store_some(dx + i, rstd * (gain[ch] * load_some(dy + i, k) - along - unit * across), k);
    });
  }
}

// Likewise for one position per channel, vectorised over channels.
void batch_norm_columns(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const BatchNormContext*>(context);
  const int64_t n = c.channels;
  const float *x = static_cast<const float*>(buffers[0]), *gain = static_cast<const float*>(buffers[1]),
              *bias = static_cast<const float*>(buffers[2]);
  float *y = static_cast<float*>(buffers[3]), *means = static_cast<float*>(buffers[4]),
        *rstds = static_cast<float*>(buffers[5]);
  const float count = static_cast<float>(c.batch);
  const Range vectors = share((n + kWidth - 1) / kWidth, c.parts, part);
  for (int64_t i = vectors.begin * kWidth; i < vectors.end * kWidth; i += kWidth) {
    const int64_t k = lanes_at(i, n);
    vf mean{}, rest{}, square{};
    for (int64_t b = 0; b < c.batch; ++b) mean += load_some(x + b * n + i, k);
    mean = mean / count;
    for (int64_t b = 0; b < c.batch; ++b) {
      const vf d = load_some(x + b * n + i, k) - mean;
      rest += d;
      square = fma(d, d, square);
    }
    rest = rest / count;
    const vf rstd = 1.0f / vsqrt(variance_of(square / count, rest) + c.epsilon), moved = -rest * rstd;
    const vf g = load_some(gain + i, k), shift = load_some(bias + i, k);
    for (int64_t b = 0; b < c.batch; ++b)
      store_some(y + b * n + i, fma(load_some(x + b * n + i, k) - mean, rstd, moved) * g + shift, k);
    store_some(means + i, mean + rest, k);
    store_some(rstds + i, rstd, k);
  }
}

void batch_norm_columns_grad(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const BatchNormContext*>(context);
  const int64_t n = c.channels;
  const float *x = static_cast<const float*>(buffers[0]), *gain = static_cast<const float*>(buffers[1]);
  const float *means = static_cast<const float*>(buffers[2]), *rstds = static_cast<const float*>(buffers[3]),
              *dy = static_cast<const float*>(buffers[4]);
  float *dx = static_cast<float*>(buffers[5]), *dgain = static_cast<float*>(buffers[6]),
        *dbias = static_cast<float*>(buffers[7]);
  const float count = static_cast<float>(c.batch);
  const Range vectors = share((n + kWidth - 1) / kWidth, c.parts, part);
  for (int64_t i = vectors.begin * kWidth; i < vectors.end * kWidth; i += kWidth) {
    const int64_t k = lanes_at(i, n);
    const vf mean = load_some(means + i, k), rstd = load_some(rstds + i, k), g = load_some(gain + i, k);
    vf sum{}, product{};
    for (int64_t b = 0; b < c.batch; ++b) {
      const vf d = load_some(dy + b * n + i, k);
      sum += d;
      product += d * ((load_some(x + b * n + i, k) - mean) * rstd);
    }
    store_some(dbias + i, sum, k);
    store_some(dgain + i, product, k);
    const vf along = g * sum / count, across = g * product / count;
    for (int64_t b = 0; b < c.batch; ++b) {
      const vf unit = (load_some(x + b * n + i, k) - mean) * rstd;
      store_some(dx + b * n + i, rstd * (g * load_some(dy + b * n + i, k) - along - unit * across), k);
    }
  }
}

namespace {

// Calls f(offset in the row, lanes, gain, bias) for the vectors of a row, which is one group of one sample. Gain and
// bias are per channel; with one position per channel they differ between lanes.
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

// Computes, for each channel of a row, the sums of dy and of dy times normalised x.
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

// x, gain, mean, rstd, dy -> dx, dgain, dbias. Phase 0: dx, and the sums of each sample by channel (of dy, of dy times
// normalised x) in the workspace. Phase 1: adds these sums.
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

#else

HM_VECTOR_CODE(row_norm)
HM_VECTOR_CODE(row_norm_grad)
HM_VECTOR_CODE(batch_norm)
HM_VECTOR_CODE(batch_norm_grad)
HM_VECTOR_CODE(batch_norm_columns)
HM_VECTOR_CODE(batch_norm_columns_grad)
HM_VECTOR_CODE(group_norm)
HM_VECTOR_CODE(group_norm_grad)

namespace harmonics::cpu {
namespace {

bool plan_row_norm(const Site& site, hx_kernel& out) {
  if (!site.all_f32()) return false;
  const bool centred = site.op().substr(0, 5) == "layer", gradient = site.op().ends_with("_grad");
  const hx_type& x = site.in(0);
  const int64_t axes = centred ? site.integer("norm_axes", 1) : 1;
  if (axes < 1 || axes > x.rank) return false;
  auto c = std::make_unique<NormContext>();
  c->columns = 1;
  for (uint32_t i = x.rank - static_cast<uint32_t>(axes); i < x.rank; ++i) c->columns *= x.dims[i];
  c->rows = count(x) / c->columns;
  c->centred = centred;
  c->epsilon = static_cast<float>(site.number("epsilon", 1e-5));
  const auto elements = static_cast<double>(count(x));
  if (!gradient) {
    c->parts = parts_for(elements * 0.5, c->rows);
    answer(out, std::move(c), chosen::row_norm(), centred ? "layer norm" : "rms norm").in_place = 1;
    return true;
  }
  c->parts = sums_for(elements * 0.8, c->rows);
  c->column_parts = parts_for(0.2 * static_cast<double>(c->columns * c->parts), (c->columns + 15) / 16);
  const uint64_t workspace = static_cast<uint64_t>(c->columns) * c->parts * (centred ? 2 : 1) * 4;
  const std::vector<uint32_t> parts = {c->parts, c->column_parts};
  answer(out, std::move(c), chosen::row_norm_grad(), centred ? "layer norm" : "rms norm", parts).workspace = workspace;
  return true;
}

bool plan_batch_norm(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  if (!site.all_f32() || x.rank < 2) return false;
  const bool gradient = site.op().ends_with("_grad");
  auto c = std::make_unique<BatchNormContext>();
  c->batch = x.dims[0];
  c->channels = x.dims[1];
  c->places = count(x) / (c->batch * c->channels);
  c->epsilon = static_cast<float>(site.number("epsilon", 1e-5));
  const bool columns = c->places == 1;
  c->parts = parts_for(static_cast<double>(count(x)) * (gradient ? 0.8 : 0.6),
                       columns ? (c->channels + 15) / 16 : c->channels);
  answer(out, std::move(c),
         gradient  ? (columns ? chosen::batch_norm_columns_grad() : chosen::batch_norm_grad())
         : columns ? chosen::batch_norm_columns()
                   : chosen::batch_norm(),
         "batch norm");
  return true;
}

bool plan_group_norm(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const int64_t groups = site.integer("groups");
  if (!site.all_f32() || x.rank < 2 || groups < 1 || x.dims[1] % groups) return false;
  const bool gradient = site.op().ends_with("_grad");
  auto c = std::make_unique<GroupNormContext>();
  c->batch = x.dims[0];
  c->groups = groups;
  c->channels = x.dims[1] / groups;
  c->places = count(x) / (x.dims[0] * x.dims[1]);
  c->epsilon = static_cast<float>(site.number("epsilon", 1e-5));
  c->parts = parts_for(static_cast<double>(count(x)) * (gradient ? 0.8 : 0.6), c->batch * groups);
  if (!gradient) {
    answer(out, std::move(c), chosen::group_norm(), "group norm").in_place = 1;
    return true;
  }
  c->channel_parts = parts_for(0.2 * static_cast<double>(c->batch * x.dims[1]), (x.dims[1] + 15) / 16);
  const uint64_t workspace = static_cast<uint64_t>(c->batch * x.dims[1]) * 2 * sizeof(float);
  const std::vector<uint32_t> parts{c->parts, c->channel_parts};
  answer(out, std::move(c), chosen::group_norm_grad(), "group norm", parts).workspace = workspace;
  return true;
}

}  // namespace

HM_PLANS(norm, {"layer_norm", plan_row_norm}, {"layer_norm_grad", plan_row_norm}, {"rms_norm", plan_row_norm},
         {"rms_norm_grad", plan_row_norm}, {"batch_norm", plan_batch_norm}, {"batch_norm_grad", plan_batch_norm},
         {"group_norm", plan_group_norm}, {"group_norm_grad", plan_group_norm})

}  // namespace harmonics::cpu

#endif
