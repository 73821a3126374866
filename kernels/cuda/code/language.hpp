// The kernels' language: CUDA, or its emulation on the processor for tests. And common device functions.
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
#define HM_UNROLL _Pragma("unroll")        // of loops over arrays, which stay in registers then
#define HM_UNROLL_BY(n) HM_TEXT(unroll n)  // of loops whose loads are to be under way together
#define HM_TEXT(...) _Pragma(#__VA_ARGS__)
#endif

#include <harmonics/abi.h>

namespace harmonics::cuda {

#ifndef HM_EMULATED
using Half = __half;
using BFloat16 = __nv_bfloat16;
// Saturates at 448.
__device__ inline uint8_t e4m3_bits(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); }
#endif

constexpr uint32_t kWarp = 32;
constexpr uint32_t kAllLanes = 0xffffffffu;

// Index of this thread in a one-dimensional grid.
__device__ inline uint32_t thread_number() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Whether the kernel leaves its outputs unchanged, because the number it checks is infinite or NaN.
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
// Clamped to [0, size).
__device__ inline uint32_t index_at(const void* numbers, uint32_t dtype, uint32_t i, uint32_t size) {
  const int64_t v = whole_at(numbers, dtype, i);
  return v < 0 ? 0 : v >= size ? size - 1 : static_cast<uint32_t>(v);
}

// Sums of narrow integers are 64-bit and wrap when stored.
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

// NaN wins and stays in extremes.
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
// Every thread of the block of kCount threads gets the result.
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

// How many of 0 ... n - 1 begin at `first` and are `apart`. Loops over such a number have their loads under way
// together where they are unrolled.
__device__ inline uint32_t rounds_of(uint32_t first, uint32_t n, uint32_t apart) {
  return first < n ? (n - first - 1) / apart + 1 : 0;
}

// The instance of a kernel for elements of `element_bytes` bytes.
#define HM_BY_WIDTH(kernel)                             \
  (element_bytes == 1   ? HM_FUNCTION(kernel<uint8_t>)  \
   : element_bytes == 2 ? HM_FUNCTION(kernel<uint16_t>) \
   : element_bytes == 4 ? HM_FUNCTION(kernel<uint32_t>) \
                        : HM_FUNCTION(kernel<uint64_t>))
// by(kernel<T>) for elements of type `dtype`; null: no such type.
#define HM_BY_NUMBER(by, kernel)           \
  (dtype == HX_F32   ? by(kernel<float>)   \
   : dtype == HX_F64 ? by(kernel<double>)  \
   : dtype == HX_I32 ? by(kernel<int32_t>) \
   : dtype == HX_I64 ? by(kernel<int64_t>) \
   : dtype == HX_U8  ? by(kernel<uint8_t>) \
                     : nullptr)

__device__ inline float infinity() { return __int_as_float(0x7f800000); }

// Mean of squares minus square of the mean, never negative. The mean of large numbers is rounded, so kernels also pass
// the mean of the centred values.
__device__ inline float variance_of(float squares, float mean) {
  const float less = squares - mean * mean;
  return squares == infinity() ? squares : less < 0 ? 0.0f : less;
}

}  // namespace harmonics::cuda
