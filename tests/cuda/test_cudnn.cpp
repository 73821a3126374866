// cuDNN itself, if present: our constants equal its header's, and it accepts our descriptors without a GPU.
#include <catch2/catch.hpp>

#include <sstream>
#include <string>

#include "kernels/cuda/dnn_description.hpp"
#include "tests/cuda/same_functions.hpp"

using namespace harmonics::cuda;

#if __has_include(<cudnn.h>)
#include <cudnn.h>
using testing::agree;
static_assert(agree(dnn::kConvolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR) &&
              agree(dnn::kEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
static_assert(agree(dnn::kEngineChoice, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) &&
              agree(dnn::kHeuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
static_assert(agree(dnn::kPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) &&
              agree(dnn::kForward, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR));
static_assert(agree(dnn::kGradientOfWeight, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR));
static_assert(agree(dnn::kGradientOfInput, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR));
static_assert(agree(dnn::kGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) &&
              agree(dnn::kPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
static_assert(agree(dnn::kTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
#if CUDNN_VERSION >= 92100
static_assert(agree(dnn::kProperties, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR) &&
              agree(dnn::kAttention, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR));
static_assert(agree(dnn::kBandMask, CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR) &&
              agree(dnn::kPropertiesText, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION));
static_assert(agree(dnn::kHeuristicsProperties, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP) &&
              agree(dnn::kPlanProperties, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP));
static_assert(agree(dnn::kAttentionQ, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC) &&
              agree(dnn::kAttentionK, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC));
static_assert(agree(dnn::kAttentionV, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC) &&
              agree(dnn::kAttentionOut, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC));
static_assert(agree(dnn::kAttentionLse, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC) &&
              agree(dnn::kAttentionScale, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC));
static_assert(agree(dnn::kAttentionChange, CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH) &&
              agree(dnn::kAttentionChangeInput, CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID));
static_assert(agree(dnn::kAttentionChangeOutput, CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID));
static_assert(agree(dnn::kMaskX, CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC) &&
              agree(dnn::kMaskY, CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC));
static_assert(agree(dnn::kMaskRight, CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SHIFT_RIGHT_BOUND_DESC) &&
              agree(dnn::kMaskFill, CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC));
static_assert(agree(dnn::kMaskComparison, CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE) &&
              agree(dnn::kGreaterOrEqual, CUDNN_POINTWISE_CMP_GE));
static_assert(agree(dnn::kComparisons, CUDNN_TYPE_POINTWISE_MODE) && agree(dnn::kCharacters, CUDNN_TYPE_CHAR) &&
              sizeof(cudnnPointwiseMode_t) == 4);
#endif
static_assert(agree(dnn::kTensorIsVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL) &&
              agree(dnn::kTensorIsByValue, CUDNN_ATTR_TENSOR_IS_BY_VALUE));
static_assert(agree(dnn::kFlags, CUDNN_TYPE_BOOLEAN) && agree(dnn::kDoubles, CUDNN_TYPE_DOUBLE) &&
              agree(dnn::kI32, CUDNN_DATA_INT32));
static_assert(agree(dnn::kF64, CUDNN_DATA_DOUBLE) && agree(dnn::kF16, CUDNN_DATA_HALF) &&
              agree(dnn::kBf16, CUDNN_DATA_BFLOAT16));
static_assert(agree(dnn::kConvolutionCompute, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) &&
              agree(dnn::kConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE));
static_assert(agree(dnn::kConvolutionDilation, CUDNN_ATTR_CONVOLUTION_DILATIONS) &&
              agree(dnn::kConvolutionStrides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES));
static_assert(agree(dnn::kConvolutionPaddingHigh, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS) &&
              agree(dnn::kConvolutionPaddingLow, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS));
static_assert(agree(dnn::kConvolutionAxes, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
static_assert(agree(dnn::kHeuristicsMode, CUDNN_ATTR_ENGINEHEUR_MODE) &&
              agree(dnn::kHeuristicsGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
static_assert(agree(dnn::kHeuristicsResults, CUDNN_ATTR_ENGINEHEUR_RESULTS) &&
              agree(dnn::kChoiceEngine, CUDNN_ATTR_ENGINECFG_ENGINE));
static_assert(agree(dnn::kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE) &&
              agree(dnn::kPlanChoice, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
static_assert(agree(dnn::kPlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
static_assert(agree(dnn::kForwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA) &&
              agree(dnn::kForwardBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA));
static_assert(agree(dnn::kForwardConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC));
static_assert(agree(dnn::kForwardWeight, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W) &&
              agree(dnn::kForwardX, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X));
static_assert(agree(dnn::kForwardY, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y));
static_assert(agree(dnn::kGradientOfInputAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA));
static_assert(agree(dnn::kGradientOfInputBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA));
static_assert(agree(dnn::kGradientOfInputConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC));
static_assert(agree(dnn::kGradientOfInputWeight, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W) &&
              agree(dnn::kGradientOfInputDx, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX));
static_assert(agree(dnn::kGradientOfInputDy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY));
static_assert(agree(dnn::kGradientOfWeightAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA));
static_assert(agree(dnn::kGradientOfWeightBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA));
static_assert(agree(dnn::kGradientOfWeightConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC));
static_assert(agree(dnn::kGradientOfWeightDweight, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW));
static_assert(agree(dnn::kGradientOfWeightX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X) &&
              agree(dnn::kGradientOfWeightDy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY));
static_assert(agree(dnn::kGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE) &&
              agree(dnn::kGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS));
static_assert(agree(dnn::kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) &&
              agree(dnn::kTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE));
static_assert(agree(dnn::kTensorDims, CUDNN_ATTR_TENSOR_DIMENSIONS) &&
              agree(dnn::kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES));
static_assert(agree(dnn::kTensorNumber, CUDNN_ATTR_TENSOR_UNIQUE_ID));
static_assert(agree(dnn::kPackNumbers, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) &&
              agree(dnn::kPackAddresses, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS));
static_assert(agree(dnn::kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE) &&
              agree(dnn::kEngineNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE));
static_assert(agree(dnn::kHandles, CUDNN_TYPE_HANDLE) && agree(dnn::kDataTypes, CUDNN_TYPE_DATA_TYPE) &&
              agree(dnn::kInt64s, CUDNN_TYPE_INT64));
static_assert(agree(dnn::kFloats, CUDNN_TYPE_FLOAT) && agree(dnn::kAddresses, CUDNN_TYPE_VOID_PTR) &&
              agree(dnn::kModes, CUDNN_TYPE_CONVOLUTION_MODE));
static_assert(agree(dnn::kHeuristicModes, CUDNN_TYPE_HEUR_MODE) && agree(dnn::kNotes, CUDNN_TYPE_NUMERICAL_NOTE) &&
              agree(dnn::kDescriptions, CUDNN_TYPE_BACKEND_DESCRIPTOR));
static_assert(agree(dnn::kF32, CUDNN_DATA_FLOAT) && agree(dnn::kCrossCorrelation, CUDNN_CROSS_CORRELATION));
static_assert(agree(dnn::kFallback, CUDNN_HEUR_MODE_FALLBACK) && agree(dnn::kBest, CUDNN_HEUR_MODE_A));
static_assert(agree(dnn::kTensorCores, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) &&
              agree(dnn::kRoundsInputs, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
static_assert(agree(dnn::kRoundsSums, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) &&
              agree(dnn::kVaries, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
static_assert(agree(dnn::kFourier, CUDNN_NUMERICAL_NOTE_FFT) && agree(dnn::kWinograd, CUDNN_NUMERICAL_NOTE_WINOGRAD));
static_assert(agree(dnn::kWinogradLargest, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13));
static_assert(sizeof(cudnnDataType_t) == 4 && sizeof(cudnnConvolutionMode_t) == 4 &&
              sizeof(cudnnBackendHeurMode_t) == 4 && sizeof(cudnnBackendNumericalNote_t) == 4);
template <auto DnnFunctions::*ours, auto theirs>
constexpr bool kDnnAlike = testing::same_function<testing::member_of<ours>, decltype(theirs)>;
static_assert(kDnnAlike<&DnnFunctions::version, cudnnGetVersion> && kDnnAlike<&DnnFunctions::create, cudnnCreate>);
static_assert(kDnnAlike<&DnnFunctions::set_stream, cudnnSetStream> &&
              kDnnAlike<&DnnFunctions::status_text, cudnnGetErrorString>);
static_assert(kDnnAlike<&DnnFunctions::make, cudnnBackendCreateDescriptor> &&
              kDnnAlike<&DnnFunctions::destroy, cudnnBackendDestroyDescriptor>);
static_assert(kDnnAlike<&DnnFunctions::set, cudnnBackendSetAttribute> &&
              kDnnAlike<&DnnFunctions::get, cudnnBackendGetAttribute>);
static_assert(kDnnAlike<&DnnFunctions::finalize, cudnnBackendFinalize> &&
              kDnnAlike<&DnnFunctions::execute, cudnnBackendExecute>);
#endif

TEST_CASE("cudnn: accepts convolution descriptors without a GPU") {
  std::string why;
  const DnnFunctions* f = open_cudnn(why);
  if (!f) {
    WARN("nothing is tested: " << why);
    return;
  }
  using Pass = Convolution::Pass;
  const Convolution cases[] = {
      {Pass::forward, {2, 6, 9, 8}, {4, 3, 3, 2}, {2, 4, 5, 4}, {2, 2}, {1, 2}, {1, 0}, {1, 1}},
      {Pass::forward, {2, 3, 1, 8}, {4, 3, 1, 3}, {2, 4, 1, 6}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
      {Pass::forward, {1, 2, 4, 5, 6}, {3, 2, 2, 2, 2}, {1, 3, 3, 4, 5}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}}};
  // Later versions load the driver's library first.
  if (const int code = describe(*f, cases[0])[0].code(); code / 1000 == 1) {
    WARN("nothing is tested: cuDNN does not start: " << f->status_text(code));
    return;
  }
  for (Convolution c : cases)
    for (const Pass pass : {Pass::forward, Pass::input, Pass::weight}) {
      c.pass = pass;
      INFO("pass " << static_cast<int>(pass) << " of " << c.x.size() - 2 << " axes");
      const auto parts = describe(*f, c);
      REQUIRE(parts.size() == 5);
      for (size_t i = 0; i < parts.size(); ++i) {
        INFO("part " << i << ": " << f->status_text(parts[i].code()));
        CHECK(parts[i].is_good());
      }
    }
  // Arguments are validated.
  Convolution wrong = cases[0];
  wrong.y[2] = 6;
  CHECK_FALSE(describe(*f, wrong).back().is_good());
}

namespace {

// An absent device, as serialized by cuDNN.
struct Absent {
  int version, multiprocessors, shared, clock, memory_clock, bus, cache;
  uint64_t memory;
  const char* name;
};
constexpr Absent kDevices[] = {
    {800, 108, 166912, 1410000, 1215000, 5120, 41943040, 42505273344, "NVIDIA A100-SXM4-40GB"},
    {900, 132, 232448, 1980000, 3201000, 6144, 62914560, 150754820096, "NVIDIA H200"},
    {1000, 148, 232448, 1965000, 3996000, 8192, 132644864, 191503138816, "NVIDIA B200"}};

std::string text_of(const Absent& d) {
  std::ostringstream out;
  out << R"({"deviceVer":)" << d.version << R"(,"driverVer":13000,"cudaDeviceId":0,"deviceName":")" << d.name
      << R"(","totalGlobalMem":)" << d.memory << R"(,"maxGridSize":[2147483647,65535,65535],)"
      << R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":)" << d.multiprocessors
      << R"(,"smCountOrigin":0,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":)"
      << d.shared << R"(,"oversizedSharedMemoryPerBlock":0,"reservedSharedMemoryPerBlock":1024,)"
      << R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024)"
      << R"(,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"smClockRateKHz":)" << d.clock
      << R"(,"memClockRateKHz":)" << d.memory_clock << R"(,"memoryBusWidth":)" << d.bus << R"(,"l2CacheSize":)"
      << d.cache << "}";
  return out.str();
}

}  // namespace

// Requires cuDNN 9.21 and a libcuda.so.1; build/*/tests/absent_driver has a stub for machines without a driver.
TEST_CASE("cudnn: plans convolutions and attention for absent devices") {
  std::string why;
  const DnnFunctions* f = open_cudnn(why);
  if (f && f->version() < 92100) why = "this cuDNN is older than 9.21";
  if (!why.empty()) {
    WARN("nothing is tested: " << why);
    return;
  }
  for (const Absent& device : kDevices) {
    INFO(device.name);
    const std::string text = text_of(device);
    Descriptor properties(*f, dnn::kProperties);
    properties.set(dnn::kPropertiesText, dnn::kCharacters, static_cast<int64_t>(text.size()), text.data()).finalize();
    if (properties.code() / 1000 == 1) {
      WARN("nothing is tested: cuDNN does not start: " << f->status_text(properties.code()));
      return;
    }
    REQUIRE(properties.is_good());
    const DnnTarget target{nullptr, &properties};
    using Pass = Convolution::Pass;
    for (const Pass pass : {Pass::forward, Pass::input, Pass::weight})
      for (const uint32_t dtype : {HX_F32, HX_F64, HX_F16, HX_BF16})
        for (const bool may_round : {false, true}) {
          Convolution c{pass, {64, 32, 26, 26}, {64, 32, 3, 3}, {64, 64, 24, 24}, {1, 1}, {1, 1}, {0, 0}, {0, 0}};
          c.dtype = dtype, c.may_round = may_round;
          const bool two_bytes = dtype == HX_F16 || dtype == HX_BF16;
          const DnnPlan plan = plan_operation(*f, target, describe(*f, c), {may_round || two_bytes, may_round}, why);
          INFO("pass " << static_cast<int>(pass) << ", type " << dtype << (may_round ? ", may round: " : ": ") << why);
          CHECK_FALSE(plan.parts.empty());
        }
    for (const bool causal : {false, true})
      for (const bool positions_first : {false, true})
        for (const uint32_t dtype : {HX_F16, HX_BF16})
          for (const int64_t shared : {8, 2}) {
            Attention a;
            a.dtype = dtype, a.batch = 16, a.heads = 8, a.shared = shared, a.queries = 100, a.keys = 128, a.width = 32,
            a.value_width = 32;
            a.positions_first = positions_first, a.is_causal = causal;
            const DnnPlan plan = plan_operation(*f, target, describe(*f, a, nullptr), {true, false}, why);
            INFO("type " << dtype << ", " << shared << " shared heads" << (causal ? ", causal" : "")
                         << (positions_first ? ", positions first: " : ": ") << why);
            CHECK_FALSE(plan.parts.empty());
          }
  }
}
