// Convolution of few channels, and convolution with max pooling, vectorised over outputs: inputs are broadcast, weights
// are packed. Max pooling runs while a band of the result is in cache, so the full result is never stored.
#include "../family.hpp"

#include "../convolution.hpp"

namespace harmonics::cpu {
namespace {

struct ConvContext : ConvGeometry {
  // Max pooling after the convolution: windows neither overlap nor cross an edge.
  bool pools;
  int64_t pool[2], pool_step[2];
  bool has_bias, relu;

  // Padded copy of x: planes of `rows` rows of `row` floats. Columns are grouped by their remainder modulo the stride,
  // `phase` columns per group, so that adjacent results read adjacent inputs. `direct`: reads x in place.
  int64_t row, phase, plane;
  bool direct;
  const int32_t* taps;     // [depth]: offsets of a window's elements from its first
  int64_t padded_outputs;  // rounded up to whole vectors
  int64_t band;            // result rows per band, computed together

  uint32_t parts;
  int64_t packed, part_workspace;  // floats
  uint32_t workspace_buffer;
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "transpose.hpp"
#include "vector_math.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr int64_t kPair = 2 * kWidth;  // outputs per tile; the last tile may have kWidth

HM_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
HM_INLINE int64_t tile_lanes(const ConvContext& c, int64_t first) {
  return c.outputs - first <= kWidth ? kWidth : kPair;
}

// Packs weights by tiles [depth, lanes], padded with zeros. Each tile is followed by its bias in the same lanes.
void pack_weight(const ConvContext& c, const float* w, const float* bias, float* to) {
  for (int64_t first = 0; first < c.outputs; first += kPair) {
    const int64_t lanes = tile_lanes(c, first), outputs = least(lanes, c.outputs - first);
    if (outputs < lanes) clear(to, c.depth * lanes);
    transpose(w + first * c.depth, c.depth, to, lanes, outputs, c.depth);
    to += c.depth * lanes;
  }
  for (int64_t o = 0; o < c.padded_outputs; ++o) to[o] = bias && o < c.outputs ? bias[o] : 0;
}

void pack_planes(const ConvContext& c, const float* x, float* to) {
  const int64_t step = c.strides[1];
  for (int64_t channel = 0; channel < c.channels; ++channel, x += c.height * c.width, to += c.plane)
    for (int64_t r = 0; r < c.rows; ++r) {
      float* row = to + r * c.row;
      clear(row, c.row);
      const int64_t y = r - c.low[0];
      if (y < 0 || y >= c.height) continue;
      const float* from = x + y * c.width;
      const int64_t end = least(c.width, c.phase * step - c.low[1]);
      if (step == 1)
        for (int64_t i = 0; i < end; ++i) row[c.low[1] + i] = from[i];
      else
        for (int64_t i = 0; i < end; ++i) row[(c.low[1] + i) % step * c.phase + (c.low[1] + i) / step] = from[i];
    }
}

// Computes kPlaces adjacent positions of kVectors vectors of outputs.
template <int kPlaces, int kVectors>
HM_INLINE void tile(const float* x, const int32_t* taps, int64_t depth, const float* w, const vf (&start)[kVectors],
                    vf floor, float* to) {
  vf sum[kPlaces][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kPlaces; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[i][v] = start[v];
  for (int64_t k = 0; k < depth; ++k, w += kVectors * kWidth) {
    const float* p = x + taps[k];
    vf weight[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) weight[v] = load(w + v * kWidth);
#pragma GCC unroll 12
    for (int i = 0; i < kPlaces; ++i) {
      const vf number = splat(p[i]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[i][v] = fma(number, weight[v], sum[i][v]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kPlaces; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) store(to + (i * kVectors + v) * kWidth, vmax(floor, sum[i][v]));
}

// Divides the positions of a row into tiles as evenly as possible: 14 = 5 + 5 + 4 rather than 6 + 6 + 2.
template <int kMost, int kVectors>
void tiles_of_row(const float* x, const int32_t* taps, int64_t depth, const float* w, const float* bias, vf floor,
                  int64_t places, float* to) {
  vf start[kVectors];
  for (int v = 0; v < kVectors; ++v) start[v] = load(bias + v * kWidth);
  for (int64_t tiles = (places + kMost - 1) / kMost; tiles > 0; --tiles) {
    const int64_t n = (places + tiles - 1) / tiles;
    switch (n) {
#define HM_TILE(k)                                                                                       \
  case k:                                                                                                \
    if constexpr (k <= kMost) tile<(k <= kMost ? k : 1), kVectors>(x, taps, depth, w, start, floor, to); \
    break;
      HM_TILE(1)
      HM_TILE(2)
      HM_TILE(3) HM_TILE(4) HM_TILE(5) HM_TILE(6) HM_TILE(7) HM_TILE(8) HM_TILE(9) HM_TILE(10) HM_TILE(11) HM_TILE(12)
#undef HM_TILE
    }
    places -= n;
    x += n;
    to += n * kVectors * kWidth;
  }
}

// Stores the first maximum of each window; NaN is the largest. kSize: the window size; 0: known only at run time.
template <int kSize>
void pool_places(const ConvContext& c, const float* band, int64_t lanes, int64_t columns, int64_t first_row,
                 int64_t rows, float* largest, float* indices) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < c.pooled_width; ++j)
      for (int64_t v = 0; v < lanes; v += kWidth) {
        const int64_t row = i * c.pool_step[0], column = j * c.pool_step[1];
        const float* window = band + (row * columns + column) * lanes + v;
        const int32_t place = static_cast<int32_t>((first_row + row) * c.out_width + column);
        vf most = load(window);
        vi best = splat_int(place);
#pragma GCC unroll 2
        for (int64_t a = 0; a < (kSize ? kSize : c.pool[0]); ++a)
#pragma GCC unroll 2
          for (int64_t b = a == 0 ? 1 : 0; b < (kSize ? kSize : c.pool[1]); ++b) {
            const vf x = load(window + (a * columns + b) * lanes);
            const vi take = ~(x <= most) & (most == most);
            most = choose(take, x, most);
            best = take ? splat_int(place + static_cast<int32_t>(a * c.out_width + b)) : best;
          }
        store(largest, most);
        store(indices, as_float(best));
        largest += kWidth;
        indices += kWidth;
      }
}

// Computes one tile of outputs of one sample.
void convolve(const ConvContext& c, const float* x, const float* w, const float* bias, int64_t lanes, int64_t outputs,
              float* workspace, float* y, float* indices) {
  const bool pools = indices != nullptr;
  const vf floor = splat(c.relu ? 0.0f : -kInfinity);
  const int64_t columns = pools ? (c.pooled_width - 1) * c.pool_step[1] + c.pool[1] : c.out_width;
  const int64_t all_rows = pools ? (c.pooled_height - 1) * c.pool_step[0] + c.pool[0] : c.out_height;
  const int64_t plane = pools ? c.pooled_height * c.pooled_width : c.out_height * c.out_width;
  float* pooled = workspace + c.band * columns * lanes;
  for (int64_t first = 0; first < all_rows; first += c.band) {
    const int64_t rows = least(c.band, all_rows - first);
    for (int64_t i = 0; i < rows; ++i) {
      const float* from = x + (first + i) * c.strides[0] * c.row;
      float* to = workspace + i * columns * lanes;
      if (lanes == kPair)
        tiles_of_row<6, 2>(from, c.taps, c.depth, w, bias, floor, columns, to);
      else
        tiles_of_row<12, 1>(from, c.taps, c.depth, w, bias, floor, columns, to);
    }
    if (!pools) {
      transpose(workspace, lanes, y + first * columns, plane, rows * columns, outputs);
      continue;
    }
    const int64_t pooled_rows = (rows - c.pool[0]) / c.pool_step[0] + 1, n = pooled_rows * c.pooled_width;
    const auto pool = c.pool[0] == 2 && c.pool[1] == 2 ? pool_places<2> : pool_places<0>;
    pool(c, workspace, lanes, columns, first, pooled_rows, pooled, pooled + n * lanes);
    const int64_t at = first / c.pool_step[0] * c.pooled_width;
    transpose(pooled, lanes, y + at, plane, n, outputs);
    transpose(pooled + n * lanes, lanes, indices + at, plane, n, outputs);
  }
}

void run_items(const ConvContext& c, void* const* buffers, uint32_t part, float* y, float* indices) {
  const float* packed = static_cast<const float*>(buffers[c.workspace_buffer]);
  float* workspace = static_cast<float*>(buffers[c.workspace_buffer]) + c.packed + part * c.part_workspace;
  const int64_t tiles = (c.outputs + kPair - 1) / kPair, image = c.channels * c.height * c.width;
  const int64_t plane = indices ? c.pooled_height * c.pooled_width : c.out_height * c.out_width;
  const Range items = share(c.samples * tiles, c.parts, part);
  int64_t packed_sample = -1;
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t sample = item / tiles, first = item % tiles * kPair, lanes = tile_lanes(c, first);
    const float* x = static_cast<const float*>(buffers[0]) + sample * image;
    if (!c.direct) {
      if (sample != packed_sample) pack_planes(c, x, workspace);
      packed_sample = sample;
      x = workspace;
    }
    const int64_t at = (sample * c.outputs + first) * plane;
    convolve(c, x, packed + first * c.depth, packed + c.padded_outputs * c.depth + first, lanes,
             least(lanes, c.outputs - first), workspace + (c.direct ? 0 : c.channels * c.plane), y + at,
             indices ? indices + at : nullptr);
  }
}

}  // namespace

// x, weight, [bias] -> y; with pooling -> maximum of each window, its index
void convolution(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const ConvContext*>(context);
  const uint32_t first_result = c.has_bias ? 3 : 2;
  if (phase == 0)
    return pack_weight(c, static_cast<const float*>(buffers[1]),
                       c.has_bias ? static_cast<const float*>(buffers[2]) : nullptr,
                       static_cast<float*>(buffers[c.workspace_buffer]));
  run_items(c, buffers, part, static_cast<float*>(buffers[first_result]),
            c.pools ? static_cast<float*>(buffers[first_result + 1]) : nullptr);
}

}  // namespace harmonics::cpu::HM_ISA

#else

HM_VECTOR_CODE(convolution)

namespace harmonics::cpu {
namespace {

struct OwnedConv : ConvContext {
  std::vector<int32_t> numbers;
};

void read_pair(const Site& site, const char* name, uint32_t spatial, int64_t otherwise, int64_t single,
               int64_t (&to)[2]) {
  const auto values = site.integers(name);
  to[0] = single;
  for (uint32_t i = 0; i < spatial; ++i) to[2 - spatial + i] = values.empty() ? otherwise : values[i];
}

// Reads the pooling attributes. False if windows overlap or contain padding.
bool pooling(const Site& site, uint32_t spatial, ConvContext& c, int64_t pooled_height, int64_t pooled_width) {
  int64_t low[2], high[2], dilation[2];
  read_pair(site, "pool_kernel", spatial, 1, 1, c.pool);
  read_pair(site, "pool_strides", spatial, 1, 1, c.pool_step);
  read_pair(site, "pool_padding_low", spatial, 0, 0, low);
  read_pair(site, "pool_padding_high", spatial, 0, 0, high);
  read_pair(site, "pool_dilation", spatial, 1, 1, dilation);
  c.pools = true;
  c.pooled_height = pooled_height;
  c.pooled_width = pooled_width;
  for (int i = 0; i < 2; ++i)
    if (low[i] || high[i] || dilation[i] != 1 || c.pool[i] > c.pool_step[i]) return false;
  return true;
}

// Reads the activation. False if it is neither relu nor none.
bool reads_relu(const Site& site, ConvContext& c) {
  int activation = kNone;
  if (!activation_of(site, activation) || (activation != kNone && activation != kRelu)) return false;
  c.relu = activation == kRelu;
  return true;
}

bool answer_forward(std::unique_ptr<OwnedConv> c, uint32_t inputs, const char* name, hx_kernel& out) {
  const int64_t width = isa().vector, step = c->strides[1];
  const int64_t covered = (c->out_width - 1) * step + (c->kernel[1] - 1) * c->dilation[1] + 1;
  c->direct = step == 1 && !c->low[0] && !c->low[1] && c->rows <= c->height && covered <= c->width;
  c->phase = c->direct ? c->width : ceil_div(covered, step);
  c->row = c->phase * step;
  c->plane = c->direct ? c->height * c->width : c->rows * c->row + 16;  // 16: planes do not share cache sets
  for (int64_t channel = 0; channel < c->channels; ++channel)
    for (int64_t a = 0; a < c->kernel[0]; ++a)
      for (int64_t b = 0; b < c->kernel[1]; ++b) {
        const int64_t column = b * c->dilation[1];
        c->numbers.push_back(static_cast<int32_t>(channel * c->plane + a * c->dilation[0] * c->row +
                                                  column % step * c->phase + column / step));
      }
  c->taps = c->numbers.data();
  const int64_t last = c->outputs % (2 * width);
  c->padded_outputs = c->outputs - last + (last == 0 ? 0 : last <= width ? width : 2 * width);
  const int64_t wanted = std::max<int64_t>(1, 128 / c->out_width);  // the band stays in the L1 cache
  c->band = c->pools ? std::max(c->pool[0], up_to(wanted, c->pool_step[0])) : wanted;
  const int64_t band_places = (c->band + c->pool_step[0]) * c->out_width;
  c->part_workspace = up_to((c->direct ? 0 : c->channels * c->plane) + 3 * band_places * 2 * width, 16);
  c->packed = up_to(c->padded_outputs * (c->depth + 1), 16);
  c->workspace_buffer = inputs + (c->pools ? 2 : 1);
  const int64_t tiles = ceil_div(c->outputs, 2 * width);
  const double steps = static_cast<double>(c->samples * c->out_height * c->out_width * c->depth) *
                       static_cast<double>(c->padded_outputs / width);
  c->parts = parts_for(steps * kVectorStep, c->samples * tiles);
  const uint64_t workspace = static_cast<uint64_t>(c->packed + c->parts * c->part_workspace) * 4;
  const std::vector<uint32_t> parts{1, c->parts};
  answer<ConvContext>(out, std::move(c), chosen::convolution(), name, parts).workspace = workspace;
  return true;
}

bool plan_pooled_convolution(const Site& site, hx_kernel& out) {
  const std::vector<int64_t> x = dims(site.in(0)), weight = dims(site.in(1)), pooled = dims(site.out());
  if (x.size() < 3 || site.out(1).dtype != HX_I32 || weight.size() != x.size()) return false;
  for (uint32_t i = 0; i < site.inputs(); ++i)
    if (!is_f32(site.in(i))) return false;
  const uint32_t spatial = static_cast<uint32_t>(x.size()) - 2;
  auto c = std::make_unique<OwnedConv>();
  if (!conv_geometry(site, x, weight, *c) || !reads_relu(site, *c)) return false;
  if (!pooling(site, spatial, *c, spatial == 2 ? pooled[2] : 1, pooled.back())) return false;
  c->has_bias = site.inputs() == 3;
  return answer_forward(std::move(c), site.inputs(), "convolution and pooling", out);
}

// Up to this many channels this kernel is faster than oneDNN, which reorders its operands.
constexpr int64_t kFewChannels = 32;

}  // namespace

bool conv_geometry(const Site& site, const std::vector<int64_t>& x, const std::vector<int64_t>& weight,
                   ConvGeometry& c) {
  if (x.size() < 3 || x.size() > 4 || weight.size() != x.size() || site.integer("groups", 1) != 1) return false;
  const uint32_t spatial = static_cast<uint32_t>(x.size()) - 2;
  c.samples = x[0];
  c.channels = x[1];
  c.height = spatial == 2 ? x[2] : 1;
  c.width = x.back();
  c.outputs = weight[0];
  c.kernel[0] = spatial == 2 ? weight[2] : 1;
  c.kernel[1] = weight.back();
  c.depth = c.channels * c.kernel[0] * c.kernel[1];
  read_pair(site, "strides", spatial, 1, 1, c.strides);
  read_pair(site, "padding_low", spatial, 0, 0, c.low);
  read_pair(site, "dilation", spatial, 1, 1, c.dilation);
  int64_t high[2];
  read_pair(site, "padding_high", spatial, 0, 0, high);
  const auto places = [&](int i, int64_t size) {
    return (size + c.low[i] + high[i] - (c.kernel[i] - 1) * c.dilation[i] - 1) / c.strides[i] + 1;
  };
  c.out_height = places(0, c.height);
  c.out_width = places(1, c.width);
  c.rows = (c.out_height - 1) * c.strides[0] + (c.kernel[0] - 1) * c.dilation[0] + 1;
  return true;
}

bool plan_narrow_convolution(const Site& site, hx_kernel& out) {
  const std::vector<int64_t> weight = dims(site.in(1));
  if (weight.size() < 3 || weight[1] > kFewChannels) return false;
  auto c = std::make_unique<OwnedConv>();
  if (!conv_geometry(site, dims(site.in(0)), weight, *c) || !reads_relu(site, *c)) return false;
  c->pool[0] = c->pool[1] = c->pool_step[0] = c->pool_step[1] = 1;
  c->has_bias = site.inputs() == 3;
  return answer_forward(std::move(c), site.inputs(), "convolution", out);
}

HM_PLANS(convolution, {"conv_max_pool", plan_pooled_convolution})

}  // namespace harmonics::cpu

#endif
