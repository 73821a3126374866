// Matrix products with any strides, for types that cuBLASLt does not support or if it is missing; epilogues; rounding.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

constexpr uint32_t kDeep = 16, kSide = 16, kEach = kProductTile / kSide;

// A block of 16 x 16 threads computes a tile of 64 x 64, each thread 4 x 4 of it, 16 terms at a time.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    product(const T* a, const T* b, T* c, const __grid_constant__ ProductParameters p) {
  using S = typename SumOf<T>::type;
  __shared__ T left[kDeep][kProductTile + 1], right[kDeep][kProductTile + 1];
  const uint32_t me = threadIdx.x, tx = me % kSide, ty = me / kSide;
  const uint32_t row = blockIdx.y * kProductTile, column = blockIdx.x * kProductTile, batch = blockIdx.z;
  int64_t at[2];
  places_of(p.batch, batch, at);
  S sums[kEach][kEach] = {};
  for (uint32_t d = 0; d < p.k; d += kDeep) {
    for (uint32_t e = me; e < kDeep * kProductTile; e += kThreads) {
      // Coalesced: adjacent threads read adjacent elements.
      const uint32_t ar = p.a_column == 1 ? e / kDeep : e % kProductTile,
                     ad = p.a_column == 1 ? e % kDeep : e / kProductTile;
      const uint32_t bc = p.b_column == 1 ? e % kProductTile : e / kDeep,
                     bd = p.b_column == 1 ? e / kProductTile : e % kDeep;
      left[ad][ar] = row + ar < p.m && d + ad < p.k ? a[at[0] + (row + ar) * p.a_row + (d + ad) * p.a_column] : T(0);
      right[bd][bc] =
          column + bc < p.n && d + bd < p.k ? b[at[1] + (d + bd) * p.b_row + (column + bc) * p.b_column] : T(0);
    }
    __syncthreads();
    for (uint32_t t = 0; t < kDeep; ++t)
      for (uint32_t i = 0; i < kEach; ++i)
        for (uint32_t j = 0; j < kEach; ++j)
          sums[i][j] += static_cast<S>(left[t][ty + i * kSide]) * static_cast<S>(right[t][tx + j * kSide]);
    __syncthreads();
  }
  for (uint32_t i = 0; i < kEach; ++i)
    for (uint32_t j = 0; j < kEach; ++j) {
      const uint32_t r = row + ty + i * kSide, q = column + tx + j * kSide;
      if (r < p.m && q < p.n) c[(static_cast<int64_t>(batch) * p.m + r) * p.n + q] = static_cast<T>(sums[i][j]);
    }
}

__device__ inline float tanh_of(float x) { return tanhf(x); }
__device__ inline double tanh_of(double x) { return tanh(x); }
__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }
__device__ inline float erf_of(float x) { return erff(x); }
__device__ inline double erf_of(double x) { return erf(x); }

template <typename T>
struct WideOf {
  using type = float;
};
template <>
struct WideOf<double> {
  using type = double;
};

template <typename T>
__global__ void finish(const T* bias, T* y, FinishParameters p) {
  using S = typename WideOf<T>::type;
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const S x = p.has_bias ? static_cast<S>(y[i]) + static_cast<S>(bias[i / p.places % p.columns]) : static_cast<S>(y[i]);
  S result = x;
  switch (p.activation) {
    case Activation::relu:
      result = x != x || x > 0 ? x : S(0);
      break;
    case Activation::tanh:
      result = tanh_of(x);
      break;
    case Activation::logistic: {
      const S e = exp_of(x < 0 ? x : -x);
      result = (x >= 0 ? S(1) : e) / (S(1) + e);
      break;
    }
    case Activation::gelu:
      result = S(0.5) * x * (S(1) + erf_of(x * S(0.70710678118654752440)));
      break;
    default:
      break;
  }
  y[i] = static_cast<T>(result);
}

__global__ void round_to_half(const float* from, Half* to, RoundParameters p) {
  constexpr float kLargest = 65504;
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const float x = from[i];
  to[i] = static_cast<Half>(fabsf(x) < infinity() ? (x > kLargest ? kLargest : x < -kLargest ? -kLargest : x) : x);
}

__global__ void round_to_bfloat(const float* from, BFloat16* to, RoundParameters p) {
  const uint32_t i = thread_number();
  if (i < p.count) to[i] = static_cast<BFloat16>(from[i]);
}

__global__ void largest(const float* from, float* parts, RoundParameters p) {
  float most = 0;
  for (uint32_t i = thread_number(); i < p.count; i += kLargestParts * kThreads) {
    const float x = fabsf(from[i]);
    if (x > most && x < infinity()) most = x;
  }
  most = join_block<Largest>(most);
  if (threadIdx.x == 0) parts[blockIdx.x] = most;
}

// Returns the smallest power of two that, as a divisor, brings all values to at most 448.
__device__ inline float scale_for(float most) {
  if (most == 0) return 1;
  return __int_as_float((__float_as_int(most / 448) + 0x7fffff) & 0x7f800000);
}

// Tiles of 32 x 32 are loaded along the contiguous axis of x and stored along rows; infinities become NaN.
__global__ void round_scaled(const float* from, const float* parts, uint8_t* to, float* scale, ScaledParameters p) {
  __shared__ float tile[kRoundedTile][kRoundedTile + 1];
  const float unit = scale_for(join_block<Largest>(parts[threadIdx.x]));
  if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && threadIdx.x == 0) *scale = unit;
  const uint32_t x = threadIdx.x % kRoundedTile, y = threadIdx.x / kRoundedTile, row = blockIdx.y * kRoundedTile,
                 column = blockIdx.x * kRoundedTile;
  const bool by_rows = p.column == 1;
  for (uint32_t j = y; j < kRoundedTile; j += kThreads / kRoundedTile) {
    const uint32_t r = by_rows ? j : x, c = by_rows ? x : j;
    if (row + r < p.rows && column + c < p.columns)
      tile[r][c] = from[blockIdx.z * p.batch + (row + r) * p.row + (column + c) * p.column];
  }
  __syncthreads();
  for (uint32_t j = y; j < kRoundedTile; j += kThreads / kRoundedTile)
    if (row + j < p.rows && column + x < p.columns) {
      const float v = tile[j][x] / unit;
      to[(static_cast<int64_t>(blockIdx.z) * p.rows + row + j) * p.columns + column + x] =
          fabsf(v) < infinity() ? e4m3_bits(v) : uint8_t{0x7f};
    }
}

__global__ void widen_half(const Half* from, float* to, RoundParameters p) {
  const uint32_t i = thread_number();
  if (i < p.count) to[i] = static_cast<float>(from[i]);
}

}  // namespace

Function product_function(uint32_t dtype) { return HM_BY_NUMBER(HM_FUNCTION, product); }
Function finish_function(uint32_t dtype) {
  switch (dtype) {
    case HX_F64:
      return HM_FUNCTION(finish<double>);
    case HX_F16:
      return HM_FUNCTION(finish<Half>);
    case HX_BF16:
      return HM_FUNCTION(finish<BFloat16>);
    default:
      return HM_FUNCTION(finish<float>);
  }
}
Function round_function(uint32_t dtype) {
  return dtype == HX_F16 ? HM_FUNCTION(round_to_half) : HM_FUNCTION(round_to_bfloat);
}
Function largest_function() { return HM_FUNCTION(largest); }
Function round_scaled_function() { return HM_FUNCTION(round_scaled); }
Function widen_function() { return HM_FUNCTION(widen_half); }

}  // namespace harmonics::cuda
