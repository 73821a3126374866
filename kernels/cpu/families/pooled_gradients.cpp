// Gradients of a convolution through max pooling: only the maximum of each window has a gradient, unless the activation
// cuts it off. Zeros are not multiplied.
#include "../family.hpp"

#include "../convolution.hpp"

namespace harmonics::cpu {
namespace {

// Channels are last, in blocks of `block`; `vectors`: vectors per window row of one block.
struct PooledGradientContext : ConvGeometry {
  int64_t row;  // of a padded plane
  int64_t block, blocks, vectors;
  bool gathers;           // input gradient: sorts gradients by position instead of adding window by window
  int64_t band;           // gathering: rows of positions that are sorted together
  const int32_t* places;  // [out_height * out_width]: offset of each window in a block

  uint32_t parts, join_parts;
  int64_t packed, part_workspace;  // floats
};

// Weight gradient: limit of PooledGradientContext::vectors.
constexpr int64_t kMostSumVectors = 12;
// Gathering input gradient: limits of kernel columns, and of kernel columns times vectors of a block.
constexpr int64_t kMostSpreadColumns = 7, kMostSpread = 12;

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "simd.hpp"
#include "transpose.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

HM_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

HM_INLINE bool has_gradient(float gradient) {
  int32_t bits;
  __builtin_memcpy(&bits, &gradient, sizeof bits);
  return (bits & 0x7fffffff) != 0;
}

// Lists offset and gradient of the windows of one plane with a non-zero gradient; returns their number.
HM_INLINE int64_t list_gradients(const PooledGradientContext& c, const int32_t* indices, const float* dy, int32_t* at,
                                 float* value) {
  const int64_t n = c.pooled_height * c.pooled_width;
  const uint32_t places = static_cast<uint32_t>(c.out_height * c.out_width);
  int64_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t place = static_cast<uint32_t>(indices[i]);
    const bool listed = (place < places) & has_gradient(dy[i]);
    at[found] = c.places[place < places ? place : 0];
    value[found] = dy[i];
    found += listed;
  }
  return found;
}

// ---- input gradient

// Packs the weight as [blocks, outputs, kernel rows, kernel columns, block].
void pack_weight(const PooledGradientContext& c, const float* w, float* to) {
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

void unpack_block(const PooledGradientContext& c, const float* from, int64_t first, float* dx) {
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
void gather_sample(const PooledGradientContext& c, const float* weight, const int32_t* indices, const float* dy,
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
void scatter_sample(const PooledGradientContext& c, const float* weight, const int32_t* indices, const float* dy,
                    int32_t* at, float* value, float* sums) {
  const int64_t pooled = c.pooled_height * c.pooled_width, window = c.kernel[0] * c.kernel[1] * c.block;
  const Add add = add_of_size(c.vectors);
  for (int64_t o = 0; o < c.outputs; ++o) {
    const int64_t n = list_gradients(c, indices + o * pooled, dy + o * pooled, at, value);
    add(weight + o * window, at, value, n, sums, c.row * c.block, c.kernel[0], c.vectors);
  }
}

// ---- weight gradient

// Packs channels [first, first + c.block) of a sample, padded, channels last.
void pack_block(const PooledGradientContext& c, const float* x, int64_t first, float* to) {
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
void sum_sample(const PooledGradientContext& c, const float* x, const int32_t* indices, const float* dy,
                float* workspace, float* sums) {
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
void join_sums(const PooledGradientContext& c, const float* sums, int64_t each_part, int64_t o, float* dw) {
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

// weight, indices, dy -> dx
void pooled_conv_grad_input(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const PooledGradientContext*>(context);
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

// x, indices, dy -> dw
void pooled_conv_grad_weight(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const PooledGradientContext*>(context);
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

#else

HM_VECTOR_CODE(pooled_conv_grad_input)
HM_VECTOR_CODE(pooled_conv_grad_weight)

namespace harmonics::cpu {
namespace {

struct OwnedGradient : PooledGradientContext {
  std::vector<int32_t> numbers;
};

// Halves the channel block until a window row fits the registers. Returns false if none fits.
bool choose_sums(PooledGradientContext& c, int64_t width) {
  c.block = std::min<int64_t>(c.channels, 16);
  while (c.block > 1 && ceil_div(c.kernel[1] * c.block, width) > kMostSumVectors) c.block /= 2;
  c.vectors = ceil_div(c.kernel[1] * c.block, width);
  c.blocks = ceil_div(c.channels, c.block);
  return c.vectors <= kMostSumVectors;
}

// Chooses the channel block, and whether to gather: to sort the gradients by position, which pays if positions have
// many of them.
void choose_spread(PooledGradientContext& c, int64_t width) {
  c.band = std::max<int64_t>(1, c.out_height / c.pooled_height);
  const int64_t gradients = c.outputs * c.pooled_height * c.pooled_width / (c.out_height * c.out_width);
  c.gathers = gradients >= 8 && c.kernel[1] <= kMostSpreadColumns && c.strides[0] == 1 && c.strides[1] == 1;
  const int64_t most = c.gathers ? std::min<int64_t>(4, kMostSpread / c.kernel[1]) : std::max<int64_t>(1, 16 / width);
  c.block = std::min(up_to(c.channels, width), most * width);
  c.blocks = ceil_div(c.channels, c.block);
  c.vectors = c.kernel[1] * c.block / width;
}

void list_places(OwnedGradient& c) {
  c.row = (c.out_width - 1) * c.strides[1] + c.kernel[1];
  for (int64_t i = 0; i < c.out_height; ++i)
    for (int64_t j = 0; j < c.out_width; ++j)
      c.numbers.push_back(static_cast<int32_t>((i * c.strides[0] * c.row + j * c.strides[1]) * c.block));
  c.places = c.numbers.data();
}

bool plan_gradient(const Site& site, hx_kernel& out) {
  const bool to_input = site.op() == "conv_max_pool_grad_input";
  const std::vector<int64_t> x = to_input ? dims(site.out()) : dims(site.in(0));
  const std::vector<int64_t> weight = to_input ? dims(site.in(0)) : dims(site.out());
  if (!is_f32(site.in(0)) || site.in(1).dtype != HX_I32 || !is_f32(site.in(2)) || !is_f32(site.out())) return false;
  if (x.size() < 3 || x.size() > 4) return false;
  const uint32_t spatial = static_cast<uint32_t>(x.size()) - 2;
  auto c = std::make_unique<OwnedGradient>();
  if (!conv_geometry(site, x, weight, *c) || c->dilation[0] != 1 || c->dilation[1] != 1) return false;
  c->pooled_height = spatial == 2 ? site.in(1).dims[2] : 1;
  c->pooled_width = last(site.in(1));
  // With overlapping or small pooling windows most positions have a gradient, and the dense kernel is faster.
  const int64_t pooled = c->pooled_height * c->pooled_width, listed = c->outputs * pooled;
  if (2 * pooled > c->out_height * c->out_width) return false;
  const int64_t width = isa().vector;
  if (to_input)
    choose_spread(*c, width);
  else if (!choose_sums(*c, width))
    return false;
  list_places(*c);
  c->packed = up_to(c->rows * c->row * c->block + width, 16);
  const int64_t lists = !to_input    ? 2 * listed + c->outputs
                        : c->gathers ? c->band * c->out_width * (1 + 2 * c->outputs)
                                     : 2 * pooled;
  c->part_workspace = up_to(c->packed + lists, 16);
  const double steps = static_cast<double>(c->samples * listed * c->blocks * c->kernel[0] * c->vectors);
  c->parts = parts_for(steps * kVectorStep * (to_input ? 2 : 1), c->samples);
  if (!to_input) c->parts = std::min(c->parts, 8u);  // each part has its own accumulators
  c->join_parts = parts_for(static_cast<double>(c->outputs * c->depth * c->parts), c->outputs);
  const int64_t shared = to_input ? c->blocks * c->outputs * c->kernel[0] * c->kernel[1] * c->block
                                  : c->parts * c->outputs * c->blocks * c->kernel[0] * c->vectors * width;
  const uint64_t workspace = static_cast<uint64_t>(shared + c->parts * c->part_workspace) * 4;
  const std::vector<uint32_t> parts =
      to_input ? std::vector<uint32_t>{1, c->parts} : std::vector<uint32_t>{c->parts, c->join_parts};
  answer<PooledGradientContext>(out, std::move(c),
                                to_input ? chosen::pooled_conv_grad_input() : chosen::pooled_conv_grad_weight(),
                                "sparse convolution", parts)
      .workspace = workspace;
  return true;
}

}  // namespace

HM_PLANS(pooled_gradients, {"conv_max_pool_grad_input", plan_gradient}, {"conv_max_pool_grad_weight", plan_gradient})

}  // namespace harmonics::cpu

#endif
