// Input gradient of a convolution followed by max pooling.
#include "conv_gradients.hpp"
#include "kernels.hpp"
#include "transpose.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Packs the weight as [blocks, outputs, kernel rows, kernel columns, block].
void pack_weight(const ConvContext& c, const float* w, float* to) {
  const int64_t window = c.kernel[0] * c.kernel[1];
  for (int64_t b = 0; b < c.blocks; ++b)
    for (int64_t o = 0; o < c.outputs; ++o, to += window * c.block) {
      const int64_t first = b * c.block, channels = least(c.block, c.channels - first);
      if (channels < c.block) clear(to, window * c.block);
      transpose(w + (o * c.channels + first) * window, window, to, c.block, channels, window);
    }
}

// Scatters one output's list: adds each gradient times the weights to its window.
using Add = void (*)(const float* w, const int32_t* at, const float* value, int64_t n, float* to, int64_t row,
                     int64_t rows, int64_t vectors);
template <int kVectors>
void add_windows(const float* w, const int32_t* at, const float* value, int64_t n, float* to, int64_t row, int64_t rows,
                 int64_t vectors) {
  const int64_t in_row = kVectors ? kVectors : vectors;
  for (int64_t i = 0; i < n; ++i) {
    const vf gradient = splat(value[i]);
    float* window = to + at[i];
    const float* weight = w;
    for (int64_t r = 0; r < rows; ++r, window += row, weight += in_row * kWidth)
#pragma GCC unroll 8
      for (int64_t v = 0; v < in_row; ++v)
        store(window + v * kWidth, fma(gradient, load(weight + v * kWidth), load(window + v * kWidth)));
  }
}
Add add_of_size(int64_t vectors) {
  constexpr Add kAdds[] = {add_windows<0>, add_windows<1>, add_windows<2>, add_windows<3>,
                           add_windows<4>, add_windows<5>, add_windows<6>};
  return vectors <= 6 ? kAdds[vectors] : kAdds[0];
}

void unpack_block(const ConvContext& c, const float* from, int64_t first, float* dx) {
  const int64_t channels = least(c.block, c.channels - first), plane = c.height * c.width;
  const int64_t columns = least(c.width, c.row - c.low[1]);
  dx += first * plane;
  for (int64_t y = 0; y < c.height; ++y) {
    const int64_t r = y + c.low[0];
    const int64_t covered = r < c.rows ? columns : 0;
    if (covered > 0)
      transpose(from + (r * c.row + c.low[1]) * c.block, c.block, dx + y * c.width, plane, covered, channels);
    for (int64_t channel = 0; channel < channels && covered < c.width; ++channel)
      clear(dx + channel * plane + y * c.width + covered, c.width - covered);
  }
}

// Gathering: gradients are sorted by position, and a sliding window of a row of dx stays in registers.
struct Gradient {
  int32_t weight;  // offset of its output's weights
  float value;
};

// Adds the contribution of one row of gradients through one kernel row to a row of dx.
using Spread = void (*)(const Gradient* gradients, int64_t room, const int32_t* count, int64_t places, const float* w,
                        float* to);
template <int kColumns, int kVectors>
void spread_row(const Gradient* gradients, int64_t room, const int32_t* count, int64_t places, const float* w,
                float* to) {
  vf sum[kColumns][kVectors] = {};
  const auto leave = [&]() __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) store(to + v * kWidth, load(to + v * kWidth) + sum[0][v]);
#pragma GCC unroll 8
    for (int b = 0; b + 1 < kColumns; ++b)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[b][v] = sum[b + 1][v];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[kColumns - 1][v] = vf{};
    to += kVectors * kWidth;
  };
  for (int64_t j = 0; j < places; ++j, gradients += room) {
    for (int32_t i = 0; i < count[j]; ++i) {
      const float* weight = w + gradients[i].weight;
      const vf gradient = splat(gradients[i].value);
#pragma GCC unroll 8
      for (int b = 0; b < kColumns; ++b)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v)
          sum[b][v] = fma(gradient, load(weight + (b * kVectors + v) * kWidth), sum[b][v]);
    }
    leave();
  }
  for (int b = 0; b + 1 < kColumns; ++b) leave();
}
template <int kColumns, int kVectors>
constexpr Spread spread_of_size() {
  if constexpr (kColumns * kVectors <= kMostSpread)
    return spread_row<kColumns, kVectors>;
  else
    return nullptr;
}
#define HM_SPREADS(k) \
  { spread_of_size<k, 1>(), spread_of_size<k, 2>(), spread_of_size<k, 3>(), spread_of_size<k, 4>() }
constexpr Spread kSpreads[kMostSpreadColumns][4] = {HM_SPREADS(1), HM_SPREADS(2), HM_SPREADS(3), HM_SPREADS(4),
                                                    HM_SPREADS(5), HM_SPREADS(6), HM_SPREADS(7)};
#undef HM_SPREADS

// Computes one sample band by band; a band is the rows covered by a row of pooling windows. A position outside its
// band, which max pooling never produces, is added separately.
void gather_sample(const ConvContext& c, const float* weight, const int32_t* indices, const float* dy,
                   Gradient* gradients, int32_t* count, float* sums) {
  const int64_t window = c.kernel[0] * c.kernel[1] * c.block, row = c.row * c.block;
  const int64_t pooled = c.pooled_height * c.pooled_width, band_places = c.band * c.out_width;
  const Spread spread = kSpreads[c.kernel[1] - 1][c.block / kWidth - 1];
  for (int64_t band = 0; band < c.pooled_height; ++band) {
    const int64_t first = band * c.band * c.out_width;
    for (int64_t i = 0; i < band_places; ++i) count[i] = 0;
    for (int64_t o = 0; o < c.outputs; ++o)
      for (int64_t i = o * pooled + band * c.pooled_width, end = i + c.pooled_width; i < end; ++i) {
        if (!has_gradient(dy[i])) continue;
        const int64_t place = indices[i] - first;
        if (place >= 0 && place < band_places && count[place] < c.outputs) {
          gradients[place * c.outputs + count[place]++] = {static_cast<int32_t>(o * window), dy[i]};
        } else if (indices[i] >= 0 && indices[i] < c.out_height * c.out_width) {
          add_windows<0>(weight + o * window, c.places + indices[i], dy + i, 1, sums, row, c.kernel[0], c.vectors);
        }
      }
    for (int64_t a = 0; a < c.kernel[0]; ++a)
      for (int64_t i = 0; i < c.band && band * c.band + i < c.out_height; ++i) {
        const int64_t r = band * c.band + i + a;
        if (r >= c.low[0] && r < c.low[0] + c.height)
          spread(gradients + i * c.out_width * c.outputs, c.outputs, count + i * c.out_width, c.out_width,
                 weight + a * c.kernel[1] * c.block, sums + r * row);
      }
  }
}

// Computes one sample by scattering window by window, in the order of the outputs.
void scatter_sample(const ConvContext& c, const float* weight, const int32_t* indices, const float* dy, int32_t* at,
                    float* value, float* sums) {
  const int64_t pooled = c.pooled_height * c.pooled_width, window = c.kernel[0] * c.kernel[1] * c.block;
  const Add add = add_of_size(c.vectors);
  for (int64_t o = 0; o < c.outputs; ++o) {
    const int64_t n = list_gradients(c, indices + o * pooled, dy + o * pooled, at, value);
    add(weight + o * window, at, value, n, sums, c.row * c.block, c.kernel[0], c.vectors);
  }
}

}  // namespace

// weight, indices, dy -> dx
void pooled_conv_grad_input(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const ConvContext*>(context);
  float* weight = static_cast<float*>(buffers[4]);
  const int64_t each_block = c.outputs * c.kernel[0] * c.kernel[1] * c.block;
  if (phase == 0) return pack_weight(c, static_cast<const float*>(buffers[0]), weight);
  const Range samples = share(c.samples, c.parts, part);
  const int64_t listed = c.outputs * c.pooled_height * c.pooled_width;
  float* sums = weight + c.blocks * each_block + part * c.part_workspace;
  float* lists = sums + c.packed;
  for (int64_t n = samples.begin; n < samples.end; ++n) {
    const int32_t* indices = static_cast<const int32_t*>(buffers[1]) + n * listed;
    const float* dy = static_cast<const float*>(buffers[2]) + n * listed;
    float* dx = static_cast<float*>(buffers[3]) + n * c.channels * c.height * c.width;
    for (int64_t b = 0; b < c.blocks; ++b) {
      clear(sums, c.packed);
      if (c.gathers) {
        int32_t* count = reinterpret_cast<int32_t*>(lists);
        Gradient* gradients = reinterpret_cast<Gradient*>(lists + c.band * c.out_width);
        gather_sample(c, weight + b * each_block, indices, dy, gradients, count, sums);
      } else {
        int32_t* at = reinterpret_cast<int32_t*>(lists);
        scatter_sample(c, weight + b * each_block, indices, dy, at, lists + c.pooled_height * c.pooled_width, sums);
      }
      unpack_block(c, sums, b * c.block, dx);
    }
  }
}

}  // namespace harmonics::cpu::HM_ISA
