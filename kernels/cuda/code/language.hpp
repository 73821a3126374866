// The language of the kernels, CUDA or its emulation on the CPU for tests, and common device functions.
#pragma once

#include "kernels.hpp"

#ifdef HM_EMULATED
#include HM_EMULATED
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#define HM_FUNCTION(...) reinterpret_cast<::harmonics::cuda::Function>(&__VA_ARGS__)
#define HM_UNROLL _Pragma("unroll")        // for loops over arrays, which then stay in registers
#define HM_UNROLL_BY(n) HM_TEXT(unroll n)  // for loops with several loads in flight
#define HM_TEXT(...) _Pragma(#__VA_ARGS__)
#endif

#include <harmonics/abi.h>

namespace harmonics::cuda {

#ifndef HM_EMULATED
using Half = __half;
using BFloat16 = __nv_bfloat16;
// Converts to E4M3; saturates at 448.
__device__ inline uint8_t e4m3_bits(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); }
#endif

constexpr uint32_t kWarp = 32;
constexpr uint32_t kAllLanes = 0xffffffffu;

// Returns the index of this thread in a one-dimensional grid.
__device__ inline uint32_t thread_number() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Whether the kernel must leave its outputs unchanged: the checked number is infinite or NaN.
__device__ inline bool stays(const float* number) { return number && *number - *number != 0; }

template <int kArrays>
__device__ inline void places_of(const Steps<kArrays>& walk, uint32_t number, int64_t (&at)[kArrays]) {
  for (int a = 0; a < kArrays; ++a) at[a] = walk.offsets[a];
  for (uint32_t i = walk.rank; i-- > 0;) {
    const uint32_t rest = i == 0 ? 0 : number / walk.sizes[i], here = number - rest * walk.sizes[i];
    const uint32_t index = i == 0 ? number : here;
    for (int a = 0; a < kArrays; ++a) at[a] += static_cast<int64_t>(index) * walk.strides[a][i];
    number = rest;
  }
}

__device__ inline int64_t whole_at(const void* numbers, uint32_t dtype, uint32_t i) {
  switch (dtype) {
    case HX_I64:
      return static_cast<const int64_t*>(numbers)[i];
    case HX_I32:
      return static_cast<const int32_t*>(numbers)[i];
    case HX_BOOL:
    case HX_U8:
      return static_cast<const uint8_t*>(numbers)[i];
    case HX_I8:
      return static_cast<const int8_t*>(numbers)[i];
    case HX_I16:
      return static_cast<const int16_t*>(numbers)[i];
    case HX_U16:
      return static_cast<const uint16_t*>(numbers)[i];
    case HX_U32:
      return static_cast<const uint32_t*>(numbers)[i];
    default: {  // u64 values beyond i64 saturate
      const uint64_t v = static_cast<const uint64_t*>(numbers)[i];
      return v > 0x7fffffffffffffffull ? 0x7fffffffffffffffll : static_cast<int64_t>(v);
    }
  }
}
// Returns index i, clamped to [0, size).
__device__ inline uint32_t index_at(const void* numbers, uint32_t dtype, uint32_t i, uint32_t size) {
  const int64_t v = whole_at(numbers, dtype, i);
  return v < 0 ? 0 : v >= size ? size - 1 : static_cast<uint32_t>(v);
}

// Accumulator types. Integers are summed in 64 bits and wrap when stored.
template <typename T>
struct SumOf {
  using type = int64_t;
};
template <>
struct SumOf<float> {
  using type = float;
};
template <>
struct SumOf<double> {
  using type = double;
};

template <>
struct SumOf<Half> {
  using type = float;
};
template <>
struct SumOf<BFloat16> {
  using type = float;
};

// Combines two values. In max and min, NaN replaces numbers and stays.
template <typename T>
__device__ inline T joined(T a, T b, Joining how) {
  if (how == Joining::set) return b;
  if (how == Joining::add) return a + b;
  if (a != a) return a;
  if (b != b) return b;
  return (how == Joining::largest ? b > a : b < a) ? b : a;
}

// Reductions over the kLanes threads of a row: 32 or a whole block.
struct Sum {
  template <typename T>
  __device__ static T join(T a, T b) {
    return a + b;
  }
};
struct Largest {
  template <typename T>
  __device__ static T join(T a, T b) {
    return a > b ? a : b;
  }  // ignores NaN
};

template <typename Join, typename T>
__device__ inline T join_warp(T v) {
  for (uint32_t apart = kWarp / 2; apart > 0; apart /= 2) v = Join::join(v, __shfl_xor_sync(kAllLanes, v, apart));
  return v;
}
// Reduces over the block of kCount threads; every thread receives the result.
template <typename Join, uint32_t kCount = kThreads, typename T>
__device__ inline T join_block(T v) {
  __shared__ T warps[kCount / kWarp];
  v = join_warp<Join>(v);
  __syncthreads();  // the previous call's results have been read
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = v;
  __syncthreads();
  T all = warps[0];
  for (uint32_t w = 1; w < kCount / kWarp; ++w) all = Join::join(all, warps[w]);
  return all;
}
template <uint32_t kLanes, typename Join, typename T>
__device__ inline T join_lanes(T v) {
  if constexpr (kLanes == kWarp)
    return join_warp<Join>(v);
  else
    return join_block<Join, kLanes>(v);
}

// Returns the number of values first, first + apart, ... below n. Unrolled loops with this trip count have several
// loads in flight.
__device__ inline uint32_t rounds_of(uint32_t first, uint32_t n, uint32_t apart) {
  return first < n ? (n - first - 1) / apart + 1 : 0;
}

// Instance of a kernel for elements of `element_bytes` bytes.
#define HM_BY_WIDTH(kernel)                             \
  (element_bytes == 1   ? HM_FUNCTION(kernel<uint8_t>)  \
   : element_bytes == 2 ? HM_FUNCTION(kernel<uint16_t>) \
   : element_bytes == 4 ? HM_FUNCTION(kernel<uint32_t>) \
                        : HM_FUNCTION(kernel<uint64_t>))
// by(kernel<T>) for elements of type `dtype`; null: unsupported type.
#define HM_BY_NUMBER(by, kernel)           \
  (dtype == HX_F32   ? by(kernel<float>)   \
   : dtype == HX_F64 ? by(kernel<double>)  \
   : dtype == HX_I32 ? by(kernel<int32_t>) \
   : dtype == HX_I64 ? by(kernel<int64_t>) \
   : dtype == HX_U8  ? by(kernel<uint8_t>) \
                     : nullptr)

__device__ inline float infinity() { return __int_as_float(0x7f800000); }

// Variance: mean of squares minus square of the mean, at least 0. The mean of large numbers is rounded, so kernels pass
// the mean of the centred values too.
__device__ inline float variance_of(float squares, float mean) {
  const float less = squares - mean * mean;
  return squares == infinity() ? squares : less < 0 ? 0.0f : less;
}

}  // namespace harmonics::cuda
