// The part of cuBLASLt used for products. The library is opened when the first product is planned, so that the plugin
// loads quickly and works without it. Constants are declared here; tests compare them with the toolkit's header if
// present.
#pragma once

#include <cstddef>
#include <cstdint>

namespace harmonics::cuda {

namespace lt {

using Handle = void*;
using Description = void*;  // descriptor of a product, a matrix or a preference

enum DataType : int { kF32 = 0, kF64 = 1, kF16 = 2, kBf16 = 14, kE4m3 = 28 };
enum ComputeType : int { kComputeF32 = 68, kComputeF32Tf32 = 77, kComputeF64 = 70 };
enum Operation : int32_t { kAsIs = 0, kTransposed = 1 };
enum ProductAttribute : int {
  kTransposeA = 3,
  kTransposeB = 4,
  kEpilogue = 7,
  kBiasPointer = 8,
  kScaleA = 17,
  kScaleB = 18
};
enum MatrixAttribute : int { kBatchCount = 5, kBatchStride = 6 };
enum PreferenceAttribute : int {
  kMostWorkspace = 1,
  kLeastAlignmentA = 5,
  kLeastAlignmentB = 6,
  kLeastAlignmentC = 7,
  kLeastAlignmentD = 8
};
// kSumOfA, kSumOfB: sums of an operand over the contracted axis, written to the bias pointer.
enum Epilogue : uint32_t { kPlain = 1, kRelu = 2, kBias = 4, kReluBias = 6, kSumOfA = 256, kSumOfB = 512 };

struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;  // 0: usable
  float waves;
  int reserved[4];
};

}  // namespace lt

struct LtFunctions {
  int (*create)(lt::Handle*);
  int (*destroy)(lt::Handle);
  size_t (*version)();
  const char* (*status_text)(int);
  int (*product_create)(lt::Description*, int compute_type, int scale_type);
  int (*product_set)(lt::Description, int attribute, const void*, size_t);
  int (*product_destroy)(lt::Description);
  int (*matrix_create)(lt::Description*, int type, uint64_t rows, uint64_t columns, int64_t leading);
  int (*matrix_set)(lt::Description, int attribute, const void*, size_t);
  int (*matrix_destroy)(lt::Description);
  int (*preference_create)(lt::Description*);
  int (*preference_set)(lt::Description, int attribute, const void*, size_t);
  int (*preference_destroy)(lt::Description);
  int (*heuristic)(lt::Handle, lt::Description product, lt::Description a, lt::Description b, lt::Description c,
                   lt::Description d, lt::Description preference, int wanted, lt::Heuristic* results, int* found);
  int (*product)(lt::Handle, lt::Description product, const void* alpha, const void* a, lt::Description, const void* b,
                 lt::Description, const void* beta, const void* c, lt::Description, void* d, lt::Description,
                 const lt::Algorithm*, void* workspace, size_t workspace_bytes, void* stream);
};

}  // namespace harmonics::cuda
