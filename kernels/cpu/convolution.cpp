#include "convolution.hpp"

#include <optional>

#include "families.hpp"

namespace harmonics::cpu {
namespace {

struct OwnedConv : ConvContext {
  std::vector<int32_t> numbers;
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void read_pair(const Site& site, const char* name, uint32_t spatial, int64_t otherwise, int64_t single,
               int64_t (&to)[2]) {
  const auto values = site.integers(name);
  to[0] = single;
  for (uint32_t i = 0; i < spatial; ++i) to[2 - spatial + i] = values.empty() ? otherwise : values[i];
}

// Returns sizes and window of an ungrouped convolution over one or two axes; null for other convolutions.
std::unique_ptr<OwnedConv> geometry(const Site& site, const std::vector<int64_t>& x,
                                    const std::vector<int64_t>& weight) {
  if (x.size() < 3 || x.size() > 4 || weight.size() != x.size() || site.integer("groups", 1) != 1) return nullptr;
  const uint32_t spatial = static_cast<uint32_t>(x.size()) - 2;
  auto c = std::make_unique<OwnedConv>();
  c->samples = x[0];
  c->channels = x[1];
  c->height = spatial == 2 ? x[2] : 1;
  c->width = x.back();
  c->outputs = weight[0];
  c->kernel[0] = spatial == 2 ? weight[2] : 1;
  c->kernel[1] = weight.back();
  c->depth = c->channels * c->kernel[0] * c->kernel[1];
  read_pair(site, "strides", spatial, 1, 1, c->strides);
  read_pair(site, "padding_low", spatial, 0, 0, c->low);
  read_pair(site, "dilation", spatial, 1, 1, c->dilation);
  int64_t high[2];
  read_pair(site, "padding_high", spatial, 0, 0, high);
  const auto places = [&](int i, int64_t size) {
    return (size + c->low[i] + high[i] - (c->kernel[i] - 1) * c->dilation[i] - 1) / c->strides[i] + 1;
  };
  c->out_height = places(0, c->height);
  c->out_width = places(1, c->width);
  c->rows = (c->out_height - 1) * c->strides[0] + (c->kernel[0] - 1) * c->dilation[0] + 1;
  return c;
}

// Reads the pooling attributes of conv_max_pool or its gradients. False if windows overlap or contain padding.
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

int64_t up_to(int64_t n, int64_t granule) { return ceil_div(n, granule) * granule; }

// Estimated nanoseconds of one vector FMA at full throughput.
constexpr double kVectorStep = 0.17;

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
  answer<ConvContext>(out, std::move(c), isa().convolution, name, parts).workspace = workspace;
  return true;
}

bool plan_forward(const Site& site, hx_kernel& out) {
  const std::vector<int64_t> x = dims(site.in(0)), weight = dims(site.in(1)), pooled = dims(site.out());
  if (x.size() < 3 || site.out(1).dtype != HX_I32 || weight.size() != x.size()) return false;
  for (uint32_t i = 0; i < site.inputs(); ++i)
    if (!is_f32(site.in(i))) return false;
  const uint32_t spatial = static_cast<uint32_t>(x.size()) - 2;
  auto c = geometry(site, x, weight);
  int activation = kNone;
  if (!c || !activation_of(site, activation) || (activation != kNone && activation != kRelu)) return false;
  if (!pooling(site, spatial, *c, spatial == 2 ? pooled[2] : 1, pooled.back())) return false;
  c->relu = activation == kRelu;
  c->has_bias = site.inputs() == 3;
  return answer_forward(std::move(c), site.inputs(), "convolution and pooling", out);
}

// Up to this many channels this kernel is faster than oneDNN, which reorders its operands.
constexpr int64_t kFewChannels = 32;

// Halves the channel block until a window row fits the registers. Returns false if none fits.
bool choose_sums(ConvContext& c, int64_t width) {
  c.block = std::min<int64_t>(c.channels, 16);
  while (c.block > 1 && ceil_div(c.kernel[1] * c.block, width) > kMostSumVectors) c.block /= 2;
  c.vectors = ceil_div(c.kernel[1] * c.block, width);
  c.blocks = ceil_div(c.channels, c.block);
  return c.vectors <= kMostSumVectors;
}

// Chooses the channel block, and whether to gather: to sort the gradients by position, which pays if positions have
// many of them.
void choose_spread(ConvContext& c, int64_t width) {
  c.band = std::max<int64_t>(1, c.out_height / c.pooled_height);
  const int64_t gradients = c.outputs * c.pooled_height * c.pooled_width / (c.out_height * c.out_width);
  c.gathers = gradients >= 8 && c.kernel[1] <= kMostSpreadColumns && c.strides[0] == 1 && c.strides[1] == 1;
  const int64_t most = c.gathers ? std::min<int64_t>(4, kMostSpread / c.kernel[1]) : std::max<int64_t>(1, 16 / width);
  c.block = std::min(up_to(c.channels, width), most * width);
  c.blocks = ceil_div(c.channels, c.block);
  c.vectors = c.kernel[1] * c.block / width;
}

void list_places(OwnedConv& c) {
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
  auto c = geometry(site, x, weight);
  if (!c || c->dilation[0] != 1 || c->dilation[1] != 1) return false;
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
  answer<ConvContext>(out, std::move(c), to_input ? isa().pooled_conv_grad_input : isa().pooled_conv_grad_weight,
                      "sparse convolution", parts)
      .workspace = workspace;
  return true;
}

}  // namespace

bool plan_narrow_convolution(const Site& site, hx_kernel& out) {
  const std::vector<int64_t> weight = dims(site.in(1));
  if (weight.size() < 3 || weight[1] > kFewChannels) return false;
  auto c = geometry(site, dims(site.in(0)), weight);
  int activation = kNone;
  if (!c || !activation_of(site, activation) || (activation != kNone && activation != kRelu)) return false;
  c->pool[0] = c->pool[1] = c->pool_step[0] = c->pool_step[1] = 1;
  c->relu = activation == kRelu;
  c->has_bias = site.inputs() == 3;
  return answer_forward(std::move(c), site.inputs(), "convolution", out);
}

bool plan_pooled_convolution(const Site& site, hx_kernel& out) {
  return site.op() == "conv_max_pool" ? plan_forward(site, out) : plan_gradient(site, out);
}

HM_PLANS(convolution, {"conv_max_pool", plan_pooled_convolution}, {"conv_max_pool_grad_input", plan_pooled_convolution},
         {"conv_max_pool_grad_weight", plan_pooled_convolution})

}  // namespace harmonics::cpu
