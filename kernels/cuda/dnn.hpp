// The part of cuDNN's graph API used for convolutions and attention. The library is opened when the first of these is
// planned, so that the plugin loads quickly and works without it. Constants are declared here; tests compare them with
// cuDNN's header if present.
#pragma once

#include <cstddef>
#include <cstdint>

namespace harmonics::cuda {

namespace dnn {

using Handle = void*;
using Description = void*;

enum Kind : int {
  kConvolution = 1,
  kEngine = 2,
  kEngineChoice = 3,
  kHeuristics = 4,
  kPlan = 5,
  kForward = 10,
  kGradientOfWeight = 11,
  kGradientOfInput = 12,
  kGraph = 15,
  kPack = 16,
  kTensor = 17,
  kProperties = 38,
  kAttention = 41,
  kBandMask = 44
};
enum Attribute : int {
  kConvolutionCompute = 100,
  kConvolutionMode = 101,
  kConvolutionDilation = 102,
  kConvolutionStrides = 103,
  kConvolutionPaddingHigh = 104,
  kConvolutionPaddingLow = 105,
  kConvolutionAxes = 106,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kHeuristicsProperties = 204,
  kChoiceEngine = 300,
  kPlanHandle = 400,
  kPlanChoice = 401,
  kPlanWorkspace = 402,
  kPlanProperties = 407,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardWeight = 703,
  kForwardX = 704,
  kForwardY = 705,
  kGradientOfInputAlpha = 706,
  kGradientOfInputBeta = 707,
  kGradientOfInputConvolution = 708,
  kGradientOfInputWeight = 709,
  kGradientOfInputDx = 710,
  kGradientOfInputDy = 711,
  kGradientOfWeightAlpha = 712,
  kGradientOfWeightBeta = 713,
  kGradientOfWeightConvolution = 714,
  kGradientOfWeightDweight = 715,
  kGradientOfWeightX = 716,
  kGradientOfWeightDy = 717,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorDims = 902,
  kTensorStrides = 903,
  kTensorNumber = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kPackNumbers = 1000,
  kPackAddresses = 1001,
  kPackWorkspace = 1003,
  kEngineNotes = 1303,
  kPropertiesText = 2702,
  kAttentionQ = 2800,
  kAttentionK = 2801,
  kAttentionV = 2802,
  kAttentionOut = 2803,
  kAttentionLse = 2804,
  kAttentionScale = 2805,
  kAttentionChange = 2811,
  kAttentionChangeInput = 2812,
  kAttentionChangeOutput = 2813,
  kMaskX = 3000,
  kMaskRight = 3004,
  kMaskFill = 3005,
  kMaskY = 3006,
  kMaskComparison = 3007
};
// Element types of an attribute.
enum Type : int {
  kHandles = 0,
  kDataTypes = 1,
  kFlags = 2,
  kInt64s = 3,
  kFloats = 4,
  kDoubles = 5,
  kAddresses = 6,
  kModes = 7,
  kHeuristicModes = 8,
  kNotes = 11,
  kComparisons = 14,
  kDescriptions = 15,
  kCharacters = 24
};
enum DataType : int { kF32 = 0, kF64 = 1, kF16 = 2, kI32 = 4, kBf16 = 9 };
enum Mode : int { kCrossCorrelation = 1 };
enum Comparison : int { kGreaterOrEqual = 303 };
enum HeuristicMode : int { kFallback = 2, kBest = 3 };
// Numerical notes of cuDNN engines.
enum Note : int {
  kTensorCores = 0,
  kRoundsInputs = 1,
  kRoundsSums = 2,
  kFourier = 3,
  kVaries = 4,
  kWinograd = 5,
  kWinogradLargest = 8
};

}  // namespace dnn

struct DnnFunctions {
  size_t (*version)();
  int (*create)(dnn::Handle*);
  int (*set_stream)(dnn::Handle, void* stream);
  const char* (*status_text)(int);
  int (*make)(int kind, dnn::Description*);
  int (*destroy)(dnn::Description);
  int (*set)(dnn::Description, int attribute, int type, int64_t count, const void*);
  int (*get)(dnn::Description, int attribute, int type, int64_t wanted, int64_t* count, void*);
  int (*finalize)(dnn::Description);
  int (*execute)(dnn::Handle, dnn::Description plan, dnn::Description pack);
};

}  // namespace harmonics::cuda
