#include "dnn_description.hpp"

namespace harmonics::cuda {
namespace {

constexpr int64_t kAlignment = 16;  // the most that an engine asks for; the host gives 64

std::vector<int64_t> dense(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

// How an operation calls what it works on; for the slopes, x and weight are what they are of.
struct Names {
  int kind, x, weight, y, convolution, alpha, beta;
};
constexpr Names kNames[] = {
    {dnn::kForward, dnn::kForwardX, dnn::kForwardWeight, dnn::kForwardY, dnn::kForwardConvolution, dnn::kForwardAlpha, dnn::kForwardBeta},
    {dnn::kSlopeOfInput, dnn::kSlopeOfInputDx, dnn::kSlopeOfInputWeight, dnn::kSlopeOfInputDy, dnn::kSlopeOfInputConvolution, dnn::kSlopeOfInputAlpha,
     dnn::kSlopeOfInputBeta},
    {dnn::kSlopeOfWeight, dnn::kSlopeOfWeightX, dnn::kSlopeOfWeightDweight, dnn::kSlopeOfWeightDy, dnn::kSlopeOfWeightConvolution, dnn::kSlopeOfWeightAlpha,
     dnn::kSlopeOfWeightBeta}};

}  // namespace

std::vector<Descriptor> describe(const DnnFunctions& f, const Convolution& c) {
  std::vector<Descriptor> parts;
  const auto tensor = [&](int64_t number, const std::vector<int64_t>& dims) {
    parts.emplace_back(f, dnn::kTensor)
        .choice(dnn::kTensorType, dnn::kDataTypes, dnn::kF32)
        .numbers(dnn::kTensorDims, dims)
        .numbers(dnn::kTensorStrides, dense(dims))
        .number(dnn::kTensorNumber, number)
        .number(dnn::kTensorAlignment, kAlignment)
        .finalize();
  };
  tensor(dnn_numbers::kX, c.x), tensor(dnn_numbers::kWeight, c.weight), tensor(dnn_numbers::kY, c.y);
  parts.emplace_back(f, dnn::kConvolution)
      .number(dnn::kConvolutionAxes, static_cast<int64_t>(c.strides.size()))
      .choice(dnn::kConvolutionCompute, dnn::kDataTypes, dnn::kF32)
      .choice(dnn::kConvolutionMode, dnn::kModes, dnn::kCrossCorrelation)
      .numbers(dnn::kConvolutionPaddingLow, c.low)
      .numbers(dnn::kConvolutionPaddingHigh, c.high)
      .numbers(dnn::kConvolutionDilation, c.dilation)
      .numbers(dnn::kConvolutionStrides, c.strides)
      .finalize();
  const Names& n = kNames[static_cast<size_t>(c.pass)];
  Descriptor operation(f, n.kind);
  operation.link(n.x, parts[0]).link(n.weight, parts[1]).link(n.y, parts[2]).link(n.convolution, parts[3]).factor(n.alpha, 1).factor(n.beta, 0).finalize();
  parts.push_back(std::move(operation));
  return parts;
}

}  // namespace harmonics::cuda
