#include "dnn_description.hpp"

namespace harmonics::cuda {
namespace {

constexpr int64_t kAlignment = 16;  // the largest alignment that engines need; the host guarantees 64

int data_type(uint32_t dtype) {
  switch (dtype) {
    case HX_F64:
      return dnn::kF64;
    case HX_F16:
      return dnn::kF16;
    case HX_BF16:
      return dnn::kBf16;
    default:
      return dnn::kF32;
  }
}

std::vector<int64_t> dense(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

// Returns a tensor descriptor that is not finalized.
Descriptor tensor(const DnnFunctions& f, int64_t number, int type, const std::vector<int64_t>& dims,
                  const std::vector<int64_t>& strides) {
  Descriptor d(f, dnn::kTensor);
  d.choice(dnn::kTensorType, dnn::kDataTypes, type)
      .numbers(dnn::kTensorDims, dims)
      .numbers(dnn::kTensorStrides, strides)
      .number(dnn::kTensorNumber, number)
      .number(dnn::kTensorAlignment, kAlignment);
  return d;
}

// Attribute names of an operation; for gradients, x and weight are the differentiated tensors.
struct Names {
  int kind, x, weight, y, convolution, alpha, beta;
};
constexpr Names kNames[] = {
    {dnn::kForward, dnn::kForwardX, dnn::kForwardWeight, dnn::kForwardY, dnn::kForwardConvolution, dnn::kForwardAlpha,
     dnn::kForwardBeta},
    {dnn::kGradientOfInput, dnn::kGradientOfInputDx, dnn::kGradientOfInputWeight, dnn::kGradientOfInputDy,
     dnn::kGradientOfInputConvolution, dnn::kGradientOfInputAlpha, dnn::kGradientOfInputBeta},
    {dnn::kGradientOfWeight, dnn::kGradientOfWeightX, dnn::kGradientOfWeightDweight, dnn::kGradientOfWeightDy,
     dnn::kGradientOfWeightConvolution, dnn::kGradientOfWeightAlpha, dnn::kGradientOfWeightBeta}};

}  // namespace

std::vector<Descriptor> describe(const DnnFunctions& f, const Convolution& c) {
  std::vector<Descriptor> parts;
  const auto add = [&](int64_t number, const std::vector<int64_t>& dims) {
    parts.push_back(tensor(f, number, data_type(c.dtype), dims, dense(dims))), parts.back().finalize();
  };
  add(dnn_numbers::kX, c.x), add(dnn_numbers::kWeight, c.weight), add(dnn_numbers::kY, c.y);
  const bool wide = c.dtype == HX_F64;
  parts.emplace_back(f, dnn::kConvolution)
      .number(dnn::kConvolutionAxes, static_cast<int64_t>(c.strides.size()))
      .choice(dnn::kConvolutionCompute, dnn::kDataTypes, wide ? dnn::kF64 : dnn::kF32)
      .choice(dnn::kConvolutionMode, dnn::kModes, dnn::kCrossCorrelation)
      .numbers(dnn::kConvolutionPaddingLow, c.low)
      .numbers(dnn::kConvolutionPaddingHigh, c.high)
      .numbers(dnn::kConvolutionDilation, c.dilation)
      .numbers(dnn::kConvolutionStrides, c.strides)
      .finalize();
  const Names& n = kNames[static_cast<size_t>(c.pass)];
  Descriptor operation(f, n.kind);
  operation.link(n.x, parts[0]).link(n.weight, parts[1]).link(n.y, parts[2]).link(n.convolution, parts[3]);
  const double one = 1, zero = 0;
  if (wide)
    operation.set(n.alpha, dnn::kDoubles, 1, &one).set(n.beta, dnn::kDoubles, 1, &zero);
  else
    operation.factor(n.alpha, 1).factor(n.beta, 0);
  operation.finalize();
  parts.push_back(std::move(operation));
  return parts;
}

std::vector<Descriptor> describe(const DnnFunctions& f, const Attention& a, dnn::Handle handle) {
  std::vector<Descriptor> parts;
  const auto heads = [&](int64_t number, int64_t n, int64_t positions, int64_t width) {
    const std::vector<int64_t> dims{a.batch, n, positions, width};
    const std::vector<int64_t> strides =
        a.positions_first ? std::vector<int64_t>{positions * n * width, width, n * width, 1} : dense(dims);
    parts.push_back(tensor(f, number, data_type(a.dtype), dims, strides)), parts.back().finalize();
  };
  const auto scalar = [&](int64_t number, int type) {
    parts.push_back(tensor(f, number, type, {1, 1, 1, 1}, {1, 1, 1, 1})),
        parts.back().flag(dnn::kTensorIsByValue, true).finalize();
  };
  heads(dnn_numbers::kQ, a.heads, a.queries, a.width), heads(dnn_numbers::kK, a.shared, a.keys, a.width);
  heads(dnn_numbers::kV, a.shared, a.keys, a.value_width), heads(dnn_numbers::kOut, a.heads, a.queries, a.value_width);
  const std::vector<int64_t> rows{a.batch, a.heads, a.queries, 1};
  parts.push_back(tensor(f, dnn_numbers::kLse, dnn::kF32, rows, dense(rows))), parts.back().finalize();
  scalar(dnn_numbers::kScale, dnn::kF32);
  Descriptor operation(f, dnn::kAttention);
  operation.link(dnn::kAttentionQ, parts[0])
      .link(dnn::kAttentionK, parts[1])
      .link(dnn::kAttentionV, parts[2])
      .link(dnn::kAttentionOut, parts[3]);
  operation.link(dnn::kAttentionLse, parts[4]).link(dnn::kAttentionScale, parts[5]);
  if (a.is_causal) {
    // Inner graph of the causal mask: scores are -inf unless row + reach >= column.
    const size_t first = parts.size();
    scalar(dnn_numbers::kReach, dnn::kI32), scalar(dnn_numbers::kFill, dnn::kF32);
    const std::vector<int64_t> scores{a.batch, a.heads, a.queries, a.keys};
    for (const int64_t number : {dnn_numbers::kScores, dnn_numbers::kMasked})
      parts.push_back(tensor(f, number, dnn::kF32, scores, dense(scores))),
          parts.back().flag(dnn::kTensorIsVirtual, true).finalize();
    Descriptor mask(f, dnn::kBandMask);
    mask.link(dnn::kMaskRight, parts[first])
        .link(dnn::kMaskFill, parts[first + 1])
        .link(dnn::kMaskX, parts[first + 2])
        .link(dnn::kMaskY, parts[first + 3]);
    mask.choice(dnn::kMaskComparison, dnn::kComparisons, dnn::kGreaterOrEqual).finalize();
    parts.push_back(std::move(mask));
    const dnn::Description raw = parts.back().get();
    Descriptor change(f, dnn::kGraph);
    change.handle(dnn::kGraphHandle, handle).set(dnn::kGraphOperations, dnn::kDescriptions, 1, &raw).finalize();
    operation.link(dnn::kAttentionChange, change)
        .number(dnn::kAttentionChangeInput, dnn_numbers::kScores)
        .number(dnn::kAttentionChangeOutput, dnn_numbers::kMasked);
    parts.push_back(std::move(change));
  }
  operation.finalize();
  parts.push_back(std::move(operation));
  return parts;
}

}  // namespace harmonics::cuda
