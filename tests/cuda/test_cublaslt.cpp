// The toolkit's own cuBLASLt, where it is: our numbers are its header's, and descriptions can be made without an accelerator.
#include <catch2/catch.hpp>

#include "kernels/cuda/driver.hpp"
#include "kernels/cuda/lt.hpp"

using namespace harmonics::cuda;

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
constexpr bool agree(int ours, int theirs) { return ours == theirs; }
static_assert(agree(lt::kF32, CUDA_R_32F) && agree(lt::kF64, CUDA_R_64F) && agree(lt::kF16, CUDA_R_16F) && agree(lt::kBf16, CUDA_R_16BF));
static_assert(agree(lt::kComputeF32, CUBLAS_COMPUTE_32F) && agree(lt::kComputeF32Tf32, CUBLAS_COMPUTE_32F_FAST_TF32) && agree(lt::kComputeF64, CUBLAS_COMPUTE_64F));
static_assert(agree(lt::kTransposed, CUBLAS_OP_T) && agree(lt::kTransposeA, CUBLASLT_MATMUL_DESC_TRANSA) && agree(lt::kTransposeB, CUBLASLT_MATMUL_DESC_TRANSB));
static_assert(agree(lt::kEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE) && agree(lt::kBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER));
static_assert(agree(lt::kBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) && agree(lt::kBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET));
static_assert(agree(lt::kMostWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) && agree(lt::kLeastAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) &&
              agree(lt::kLeastAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES));
static_assert(agree(lt::kPlain, CUBLASLT_EPILOGUE_DEFAULT) && agree(lt::kRelu, CUBLASLT_EPILOGUE_RELU) && agree(lt::kReluBias, CUBLASLT_EPILOGUE_RELU_BIAS));
static_assert(agree(lt::kSumOfA, CUBLASLT_EPILOGUE_BGRADA) && agree(lt::kSumOfB, CUBLASLT_EPILOGUE_BGRADB));
static_assert(sizeof(lt::Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t) && sizeof(lt::Algorithm) == sizeof(cublasLtMatmulAlgo_t));
#endif

TEST_CASE("cuBLASLt takes the descriptions of products without an accelerator") {
  std::string why;
  const LtFunctions* f = open_cublaslt(why);
  if (!f) {
    WARN("nothing is tested: " << why);
    return;
  }
  lt::Description product = nullptr, matrix = nullptr, preference = nullptr;
  const int32_t transposed = lt::kTransposed, batch = 3;
  const uint32_t epilogue = lt::kReluBias, alignment = 64;
  const int64_t stride = 12;
  const uint64_t workspace = 1 << 20;
  const void* bias = &batch;
  REQUIRE(f->product_create(&product, lt::kComputeF32Tf32, lt::kF32) == 0);
  CHECK(f->product_set(product, lt::kTransposeA, &transposed, sizeof transposed) == 0);
  CHECK(f->product_set(product, lt::kEpilogue, &epilogue, sizeof epilogue) == 0);
  CHECK(f->product_set(product, lt::kBiasPointer, &bias, sizeof bias) == 0);
  REQUIRE(f->matrix_create(&matrix, lt::kBf16, 3, 4, 5) == 0);
  CHECK(f->matrix_set(matrix, lt::kBatchCount, &batch, sizeof batch) == 0);
  CHECK(f->matrix_set(matrix, lt::kBatchStride, &stride, sizeof stride) == 0);
  REQUIRE(f->preference_create(&preference) == 0);
  CHECK(f->preference_set(preference, lt::kMostWorkspace, &workspace, sizeof workspace) == 0);
  CHECK(f->preference_set(preference, lt::kLeastAlignmentD, &alignment, sizeof alignment) == 0);
  CHECK(f->product_destroy(product) == 0);
  CHECK(f->matrix_destroy(matrix) == 0);
  CHECK(f->preference_destroy(preference) == 0);
}
