// Gradients of a convolution that max pooling follows: of every window only the largest place has a slope, and a place that
// an activation has cut off has none either. The rest is not multiplied.
#include "../convolution.hpp"
#include "kernels.hpp"
#include "transpose.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

HM_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Channels [first, first + c.block) of a sample, with padding, channels last.
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

// Where the windows of one plane begin whose slope is not zero, and that slope.
int64_t list_slopes(const ConvContext& c, const int32_t* indices, const float* dy, int32_t* at, float* value) {
  const int64_t n = c.pooled_height * c.pooled_width;
  const uint32_t places = static_cast<uint32_t>(c.out_height * c.out_width);
  int64_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (static_cast<uint32_t>(indices[i]) >= places) continue;
    at[found] = c.places[indices[i]];
    value[found] = dy[i];
    found += dy[i] != 0;
  }
  return found;
}

#if defined(__AVX512F__)
constexpr int kMostSums = 24;
#else
constexpr int kMostSums = 12;
#endif

// What a loop over listed windows sums up: kRows rows of kVectors vectors of each window, weighted by its slope.
using Sum = void (*)(const float* x, int64_t row, const int32_t* at, const float* value, int64_t n, float* sums,
                     int64_t sums_row);
template <int kRows, int kVectors>
void sum_windows(const float* x, int64_t row, const int32_t* at, const float* value, int64_t n, float* sums,
                 int64_t sums_row) {
  // Few sums would wait for each other: two sets of them take turns.
  constexpr int kSets = kRows * kVectors * 2 <= kMostSums ? 2 : 1;
  vf sum[kSets][kRows][kVectors] = {};
  const auto add = [&](int64_t i, vf(&to)[kRows][kVectors]) __attribute__((always_inline)) {
    const float* from = x + at[i];
    const vf slope = splat(value[i]);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 12
      for (int v = 0; v < kVectors; ++v) to[r][v] = fma(slope, load(from + r * row + v * kWidth), to[r][v]);
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
#define HM_ROW_OF_SUMS(v)                                                                                   \
  {                                                                                                         \
    sum_of_size<1, v>(), sum_of_size<2, v>(), sum_of_size<3, v>(), sum_of_size<4, v>(), sum_of_size<5, v>() \
  }
constexpr Sum kSums[kMostSumVectors][kMostRows] = {
    HM_ROW_OF_SUMS(1), HM_ROW_OF_SUMS(2), HM_ROW_OF_SUMS(3), HM_ROW_OF_SUMS(4),  HM_ROW_OF_SUMS(5),  HM_ROW_OF_SUMS(6),
    HM_ROW_OF_SUMS(7), HM_ROW_OF_SUMS(8), HM_ROW_OF_SUMS(9), HM_ROW_OF_SUMS(10), HM_ROW_OF_SUMS(11), HM_ROW_OF_SUMS(12)};
#undef HM_ROW_OF_SUMS

// All of one sample into `sums`: [outputs, blocks, kernel rows, vectors].
void sum_sample(const ConvContext& c, const float* x, const int32_t* indices, const float* dy, float* workspace,
                float* sums) {
  const int64_t pooled = c.pooled_height * c.pooled_width, listed = c.outputs * pooled;
  float* packed = workspace;
  float* value = packed + c.packed;
  int32_t* at = reinterpret_cast<int32_t*>(value + listed);
  int32_t* count = at + listed;
  for (int64_t o = 0; o < c.outputs; ++o)
    count[o] = static_cast<int32_t>(
        list_slopes(c, indices + o * pooled, dy + o * pooled, at + o * pooled, value + o * pooled));
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

// Adds the parts' sums in their order: dw[o][channel][a][b].
void join_sums(const ConvContext& c, const float* sums, int64_t each_part, int64_t o, float* dw) {
  const int64_t sums_row = c.vectors * kWidth, each = c.kernel[0] * sums_row;
  for (int64_t channel = 0; channel < c.channels; ++channel)
    for (int64_t a = 0; a < c.kernel[0]; ++a)
      for (int64_t b = 0; b < c.kernel[1]; ++b) {
        const float* from = sums + (o * c.blocks + channel / c.block) * each + a * sums_row + b * c.block +
                            channel % c.block;
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

namespace {

// [blocks, outputs, kernel rows, kernel columns, block]
void pack_weight(const ConvContext& c, const float* w, float* to) {
  const int64_t window = c.kernel[0] * c.kernel[1];
  for (int64_t b = 0; b < c.blocks; ++b)
    for (int64_t o = 0; o < c.outputs; ++o, to += window * c.block) {
      const int64_t first = b * c.block, channels = least(c.block, c.channels - first);
      if (channels < c.block) clear(to, window * c.block);
      transpose(w + (o * c.channels + first) * window, window, to, c.block, channels, window);
    }
}

// One window more: the listed slope times the weights of its output. kRuns vectors a row at least.
HM_INLINE void add_window(const float* w, float slope, float* to, int64_t row, int64_t rows, int64_t vectors) {
  const vf d = splat(slope);
  for (int64_t r = 0; r < rows; ++r, to += row, w += vectors * kWidth)
    for (int64_t v = 0; v < vectors; ++v)
      store(to + v * kWidth, fma(d, load(w + v * kWidth), load(to + v * kWidth)));
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

}  // namespace

// weight, indices, dy -> dx
void pooled_conv_grad_input(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const ConvContext*>(context);
  float* weight = static_cast<float*>(buffers[4]);
  const int64_t window = c.kernel[0] * c.kernel[1] * c.block;
  if (phase == 0) return pack_weight(c, static_cast<const float*>(buffers[0]), weight);
  const Range samples = share(c.samples, c.parts, part);
  const int64_t pooled = c.pooled_height * c.pooled_width, listed = c.outputs * pooled;
  float* sums = weight + c.blocks * c.outputs * window + part * c.part_workspace;
  float* value = sums + c.packed;
  int32_t* at = reinterpret_cast<int32_t*>(value + listed);
  int32_t* count = at + listed;
  for (int64_t n = samples.begin; n < samples.end; ++n) {
    const int32_t* indices = static_cast<const int32_t*>(buffers[1]) + n * listed;
    const float* dy = static_cast<const float*>(buffers[2]) + n * listed;
    float* dx = static_cast<float*>(buffers[3]) + n * c.channels * c.height * c.width;
    for (int64_t o = 0; o < c.outputs; ++o)
      count[o] = static_cast<int32_t>(
          list_slopes(c, indices + o * pooled, dy + o * pooled, at + o * pooled, value + o * pooled));
    for (int64_t b = 0; b < c.blocks; ++b) {
      clear(sums, c.packed);
      for (int64_t o = 0; o < c.outputs; ++o) {
        const float* w = weight + (b * c.outputs + o) * window;
        for (int64_t i = o * pooled, end = i + count[o]; i < end; ++i)
          add_window(w, value[i], sums + at[i], c.row * c.block, c.kernel[0], c.vectors);
      }
      unpack_block(c, sums, b * c.block, dx);
    }
  }
}

}  // namespace harmonics::cpu::HM_ISA
