// The toolkit's cuBLASLt, if present: our constants equal its header's, and descriptors can be created without a GPU.
#include <catch2/catch.hpp>

#include <cstddef>
#include <type_traits>

#include "kernels/cuda/driver.hpp"
#include "kernels/cuda/lt.hpp"
#include "tests/cuda/same_functions.hpp"

using namespace harmonics::cuda;

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
using testing::agree;
static_assert(agree(lt::kF32, CUDA_R_32F) && agree(lt::kF64, CUDA_R_64F) && agree(lt::kF16, CUDA_R_16F) &&
              agree(lt::kBf16, CUDA_R_16BF));
static_assert(agree(lt::kE4m3, CUDA_R_8F_E4M3) && agree(lt::kScaleA, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER) &&
              agree(lt::kScaleB, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER));
static_assert(agree(lt::kComputeF32, CUBLAS_COMPUTE_32F) && agree(lt::kComputeF32Tf32, CUBLAS_COMPUTE_32F_FAST_TF32) &&
              agree(lt::kComputeF64, CUBLAS_COMPUTE_64F));
static_assert(agree(lt::kAsIs, CUBLAS_OP_N) && agree(lt::kTransposed, CUBLAS_OP_T));
static_assert(agree(lt::kTransposeA, CUBLASLT_MATMUL_DESC_TRANSA) &&
              agree(lt::kTransposeB, CUBLASLT_MATMUL_DESC_TRANSB));
static_assert(agree(lt::kEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE) &&
              agree(lt::kBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER));
static_assert(agree(lt::kBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) &&
              agree(lt::kBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET));
static_assert(agree(lt::kMostWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES));
static_assert(agree(lt::kLeastAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) &&
              agree(lt::kLeastAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES));
static_assert(agree(lt::kLeastAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES) &&
              agree(lt::kLeastAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES));
static_assert(agree(lt::kPlain, CUBLASLT_EPILOGUE_DEFAULT) && agree(lt::kRelu, CUBLASLT_EPILOGUE_RELU));
static_assert(agree(lt::kBias, CUBLASLT_EPILOGUE_BIAS) && agree(lt::kReluBias, CUBLASLT_EPILOGUE_RELU_BIAS));
static_assert(agree(lt::kSumOfA, CUBLASLT_EPILOGUE_BGRADA) && agree(lt::kSumOfB, CUBLASLT_EPILOGUE_BGRADB));
// Structures: equal members at equal offsets.
static_assert(sizeof(lt::Algorithm) == sizeof(cublasLtMatmulAlgo_t) &&
              alignof(lt::Algorithm) == alignof(cublasLtMatmulAlgo_t));
static_assert(sizeof(lt::Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              alignof(lt::Heuristic) == alignof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(lt::Heuristic, algorithm) == offsetof(cublasLtMatmulHeuristicResult_t, algo));
static_assert(offsetof(lt::Heuristic, workspace) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(lt::Heuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state) &&
              agree(0, CUBLAS_STATUS_SUCCESS));
static_assert(offsetof(lt::Heuristic, waves) == offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));
static_assert(sizeof(lt::Heuristic::workspace) == sizeof(cublasLtMatmulHeuristicResult_t::workspaceSize) &&
              sizeof(lt::Heuristic::state) == sizeof(cublasLtMatmulHeuristicResult_t::state));
// Functions: equal arguments in equal order.
template <auto LtFunctions::*ours, auto theirs>
constexpr bool kLtAlike = testing::same_function<testing::member_of<ours>, decltype(theirs)>;
static_assert(kLtAlike<&LtFunctions::create, cublasLtCreate> && kLtAlike<&LtFunctions::destroy, cublasLtDestroy>);
static_assert(kLtAlike<&LtFunctions::version, cublasLtGetVersion> &&
              kLtAlike<&LtFunctions::status_text, cublasLtGetStatusString>);
static_assert(kLtAlike<&LtFunctions::product_create, cublasLtMatmulDescCreate> &&
              kLtAlike<&LtFunctions::product_set, cublasLtMatmulDescSetAttribute>);
static_assert(kLtAlike<&LtFunctions::product_destroy, cublasLtMatmulDescDestroy> &&
              kLtAlike<&LtFunctions::matrix_create, cublasLtMatrixLayoutCreate>);
static_assert(kLtAlike<&LtFunctions::matrix_set, cublasLtMatrixLayoutSetAttribute> &&
              kLtAlike<&LtFunctions::matrix_destroy, cublasLtMatrixLayoutDestroy>);
static_assert(kLtAlike<&LtFunctions::preference_create, cublasLtMatmulPreferenceCreate> &&
              kLtAlike<&LtFunctions::preference_set, cublasLtMatmulPreferenceSetAttribute>);
static_assert(kLtAlike<&LtFunctions::preference_destroy, cublasLtMatmulPreferenceDestroy> &&
              kLtAlike<&LtFunctions::heuristic, cublasLtMatmulAlgoGetHeuristic>);
static_assert(kLtAlike<&LtFunctions::product, cublasLtMatmul>);
#endif

TEST_CASE("cublaslt: accepts product descriptors without a GPU") {
  std::string why;
  const LtFunctions* f = open_cublaslt(why);
  if (!f) {
    WARN("nothing is tested: " << why);
    return;
  }
  CHECK(f->version() >= 120000);
  const int32_t batch = 3;
  const int64_t stride = 12;
  const uint64_t workspace = 1 << 20;
  const uint32_t alignment = 64;
  const void* bias = &batch;
  for (const int compute : {lt::kComputeF32, lt::kComputeF32Tf32, lt::kComputeF64}) {
    INFO("computes " << compute);
    lt::Description product = nullptr;
    REQUIRE(f->product_create(&product, compute, compute == lt::kComputeF64 ? lt::kF64 : lt::kF32) == 0);
    for (const int which : {lt::kTransposeA, lt::kTransposeB})
      for (const int32_t how : {lt::kAsIs, lt::kTransposed}) {
        CHECK(f->product_set(product, which, &how, sizeof how) == 0);
      }
    for (const uint32_t epilogue : {lt::kPlain, lt::kRelu, lt::kBias, lt::kReluBias, lt::kSumOfA, lt::kSumOfB}) {
      INFO("epilogue " << epilogue);
      CHECK(f->product_set(product, lt::kEpilogue, &epilogue, sizeof epilogue) == 0);
    }
    for (const int which : {lt::kBiasPointer, lt::kScaleA, lt::kScaleB}) {
      CHECK(f->product_set(product, which, &bias, sizeof bias) == 0);
    }
    CHECK(f->product_set(product, lt::kTransposeA, &batch, 1) != 0);  // arguments are validated
    CHECK(f->product_destroy(product) == 0);
  }
  for (const int type : {lt::kF32, lt::kF64, lt::kF16, lt::kBf16, lt::kE4m3}) {
    INFO("type " << type);
    lt::Description matrix = nullptr;
    REQUIRE(f->matrix_create(&matrix, type, 3, 4, 5) == 0);
    CHECK(f->matrix_set(matrix, lt::kBatchCount, &batch, sizeof batch) == 0);
    CHECK(f->matrix_set(matrix, lt::kBatchStride, &stride, sizeof stride) == 0);
    CHECK(f->matrix_destroy(matrix) == 0);
  }
  lt::Description preference = nullptr;
  REQUIRE(f->preference_create(&preference) == 0);
  CHECK(f->preference_set(preference, lt::kMostWorkspace, &workspace, sizeof workspace) == 0);
  for (const int which : {lt::kLeastAlignmentA, lt::kLeastAlignmentB, lt::kLeastAlignmentC, lt::kLeastAlignmentD}) {
    CHECK(f->preference_set(preference, which, &alignment, sizeof alignment) == 0);
  }
  CHECK(f->preference_destroy(preference) == 0);
}
