// Weight gradient of a convolution followed by max pooling.
#include "conv_gradients.hpp"
#include "kernels.hpp"
#include "transpose.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Packs channels [first, first + c.block) of a sample, padded, channels last.
void pack_block(const ConvContext& c, const float* x, int64_t first, float* to) {
  const int64_t channels = least(c.block, c.channels - first), row = c.row * c.block;
  const int64_t columns = least(c.width, c.row - c.low[1]);
  x += first * c.height * c.width;
  for (int64_t r = 0; r < c.rows; ++r, to += row) {
    const int64_t y = r - c.low[0];
    if (y < 0 || y >= c.height || channels < c.block) clear(to, row);
    if (y < 0 || y >= c.height) continue;
    clear(to, c.low[1] * c.block);
    transpose(x + y * c.width, c.height * c.width, to + c.low[1] * c.block, c.block, channels, columns);
    clear(to + (c.low[1] + columns) * c.block, (c.row - c.low[1] - columns) * c.block);
  }
}

#if defined(__AVX512F__)
constexpr int kMostSums = 24;
#else
constexpr int kMostSums = 12;
#endif

// Sums over listed windows: kRows rows of kVectors vectors of each window, weighted by its gradient.
using Sum = void (*)(const float* x, int64_t row, const int32_t* at, const float* value, int64_t n, float* sums,
                     int64_t sums_row);
template <int kRows, int kVectors>
void sum_windows(const float* x, int64_t row, const int32_t* at, const float* value, int64_t n, float* sums,
                 int64_t sums_row) {
  // Few accumulators are doubled and used alternately, to hide the latency of the additions.
  constexpr int kSets = kRows * kVectors * 2 <= kMostSums ? 2 : 1;
  vf sum[kSets][kRows][kVectors] = {};
  const auto add = [&](int64_t i, vf(&to)[kRows][kVectors]) __attribute__((always_inline)) {
    const float* from = x + at[i];
    const vf gradient = splat(value[i]);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 12
      for (int v = 0; v < kVectors; ++v) to[r][v] = fma(gradient, load(from + r * row + v * kWidth), to[r][v]);
  };
  int64_t i = 0;
  for (; i + kSets <= n; i += kSets)
#pragma GCC unroll 2
    for (int s = 0; s < kSets; ++s) add(i + s, sum[s]);
  for (; i < n; ++i) add(i, sum[0]);
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 12
    for (int v = 0; v < kVectors; ++v) {
      float* to = sums + r * sums_row + v * kWidth;
      store(to, load(to) + (kSets == 2 ? sum[0][r][v] + sum[kSets - 1][r][v] : sum[0][r][v]));
    }
}

constexpr int kMostRows = 5;
template <int kRows, int kVectors>
constexpr Sum sum_of_size() {
  if constexpr (kRows * kVectors <= kMostSums)
    return sum_windows<kRows, kVectors>;
  else
    return nullptr;
}
#define HM_ROW_OF_SUMS(v) \
  { sum_of_size<1, v>(), sum_of_size<2, v>(), sum_of_size<3, v>(), sum_of_size<4, v>(), sum_of_size<5, v>() }
constexpr Sum kSums[kMostSumVectors][kMostRows] = {HM_ROW_OF_SUMS(1),  HM_ROW_OF_SUMS(2),  HM_ROW_OF_SUMS(3),
                                                   HM_ROW_OF_SUMS(4),  HM_ROW_OF_SUMS(5),  HM_ROW_OF_SUMS(6),
                                                   HM_ROW_OF_SUMS(7),  HM_ROW_OF_SUMS(8),  HM_ROW_OF_SUMS(9),
                                                   HM_ROW_OF_SUMS(10), HM_ROW_OF_SUMS(11), HM_ROW_OF_SUMS(12)};
#undef HM_ROW_OF_SUMS

// Adds one sample to `sums`: [outputs, blocks, kernel rows, vectors].
void sum_sample(const ConvContext& c, const float* x, const int32_t* indices, const float* dy, float* workspace,
                float* sums) {
  const int64_t pooled = c.pooled_height * c.pooled_width, listed = c.outputs * pooled;
  float* packed = workspace;
  float* value = packed + c.packed;
  int32_t* at = reinterpret_cast<int32_t*>(value + listed);
  int32_t* count = at + listed;
  for (int64_t o = 0; o < c.outputs; ++o)
    count[o] = static_cast<int32_t>(
        list_gradients(c, indices + o * pooled, dy + o * pooled, at + o * pooled, value + o * pooled));
  const int64_t row = c.row * c.block, sums_row = c.vectors * kWidth, each = c.kernel[0] * sums_row;
  const int64_t most = least(kMostRows, kMostSums / c.vectors);
  for (int64_t b = 0; b < c.blocks; ++b) {
    pack_block(c, x, b * c.block, packed);
    for (int64_t o = 0; o < c.outputs; ++o)
      for (int64_t r = 0; r < c.kernel[0]; r += most) {
        const int64_t rows = least(most, c.kernel[0] - r);
        kSums[c.vectors - 1][rows - 1](packed + r * row, row, at + o * pooled, value + o * pooled, count[o],
                                       sums + (o * c.blocks + b) * each + r * sums_row, sums_row);
      }
  }
}

// Adds the sums of the parts in a fixed order: dw[o][channel][a][b].
void join_sums(const ConvContext& c, const float* sums, int64_t each_part, int64_t o, float* dw) {
  const int64_t sums_row = c.vectors * kWidth, each = c.kernel[0] * sums_row;
  for (int64_t channel = 0; channel < c.channels; ++channel)
    for (int64_t a = 0; a < c.kernel[0]; ++a)
      for (int64_t b = 0; b < c.kernel[1]; ++b) {
        const float* from =
            sums + (o * c.blocks + channel / c.block) * each + a * sums_row + b * c.block + channel % c.block;
        float sum = 0;
        for (uint32_t part = 0; part < c.parts; ++part) sum += from[part * each_part];
        *dw++ = sum;
      }
}

}  // namespace

// x, indices, dy -> dw
void pooled_conv_grad_weight(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const ConvContext*>(context);
  const int64_t each_part = c.outputs * c.blocks * c.kernel[0] * c.vectors * kWidth;
  float* sums = static_cast<float*>(buffers[4]);
  if (phase == 1) {
    const Range outputs = share(c.outputs, c.join_parts, part);
    for (int64_t o = outputs.begin; o < outputs.end; ++o)
      join_sums(c, sums, each_part, o, static_cast<float*>(buffers[3]) + o * c.depth);
    return;
  }
  const Range samples = share(c.samples, c.parts, part);
  const int64_t pooled = c.outputs * c.pooled_height * c.pooled_width, image = c.channels * c.height * c.width;
  float* workspace = sums + c.parts * each_part + part * c.part_workspace;
  sums += part * each_part;
  clear(sums, each_part);
  for (int64_t n = samples.begin; n < samples.end; ++n)
    sum_sample(c, static_cast<const float*>(buffers[0]) + n * image,
               static_cast<const int32_t*>(buffers[1]) + n * pooled, static_cast<const float*>(buffers[2]) + n * pooled,
               workspace, sums);
}

}  // namespace harmonics::cpu::HM_ISA
