// Products of matrices with any strides, for element types and machines that cuBLASLt does not serve, and what follows a product.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

constexpr uint32_t kDeep = 16, kSide = 16, kEach = kProductTile / kSide;

template <typename T> struct SumOf {
  using type = int64_t;
};
template <> struct SumOf<float> {
  using type = float;
};
template <> struct SumOf<double> {
  using type = double;
};

// A block of 16 x 16 threads makes a tile of 64 x 64, each thread 4 x 4 of it, 16 terms at a time.
template <typename T> __global__ void __launch_bounds__(kThreads) product(const T* a, const T* b, T* c, ProductParameters p) {
  using S = typename SumOf<T>::type;
  __shared__ T left[kDeep][kProductTile + 1], right[kDeep][kProductTile + 1];
  const uint32_t me = threadIdx.x, tx = me % kSide, ty = me / kSide;
  const uint32_t row = blockIdx.y * kProductTile, column = blockIdx.x * kProductTile, batch = blockIdx.z;
  int64_t at[2];
  places_of(p.batch, batch, at);
  S sums[kEach][kEach] = {};
  for (uint32_t d = 0; d < p.k; d += kDeep) {
    for (uint32_t e = me; e < kDeep * kProductTile; e += kThreads) {
      // Neighbouring threads read neighbours in memory.
      const uint32_t ar = p.a_column == 1 ? e / kDeep : e % kProductTile, ad = p.a_column == 1 ? e % kDeep : e / kProductTile;
      const uint32_t bc = p.b_column == 1 ? e % kProductTile : e / kDeep, bd = p.b_column == 1 ? e / kProductTile : e % kDeep;
      left[ad][ar] = row + ar < p.m && d + ad < p.k ? a[at[0] + (row + ar) * p.a_row + (d + ad) * p.a_column] : T(0);
      right[bd][bc] = column + bc < p.n && d + bd < p.k ? b[at[1] + (d + bd) * p.b_row + (column + bc) * p.b_column] : T(0);
    }
    __syncthreads();
    for (uint32_t t = 0; t < kDeep; ++t)
      for (uint32_t i = 0; i < kEach; ++i)
        for (uint32_t j = 0; j < kEach; ++j) sums[i][j] += static_cast<S>(left[t][ty + i * kSide]) * static_cast<S>(right[t][tx + j * kSide]);
    __syncthreads();
  }
  for (uint32_t i = 0; i < kEach; ++i)
    for (uint32_t j = 0; j < kEach; ++j) {
      const uint32_t r = row + ty + i * kSide, q = column + tx + j * kSide;
      if (r < p.m && q < p.n) c[(static_cast<int64_t>(batch) * p.m + r) * p.n + q] = static_cast<T>(sums[i][j]);
    }
}

__global__ void finish(const float* bias, float* y, FinishParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const float x = p.has_bias ? y[i] + bias[i / p.places % p.columns] : y[i];
  switch (p.activation) {
    case Activation::relu: y[i] = x != x || x > 0 ? x : 0; break;
    case Activation::tanh: y[i] = tanhf(x); break;
    case Activation::logistic: {
      const float e = expf(-fabsf(x));
      y[i] = (x >= 0 ? 1 : e) / (1 + e);
      break;
    }
    case Activation::gelu: y[i] = 0.5f * x * (1 + erff(x * 0.70710678118654752f)); break;
    default: y[i] = x;
  }
}

}  // namespace

Function product_function(uint32_t dtype) {
  switch (dtype) {
    case HX_F32: return HM_FUNCTION(product<float>);
    case HX_F64: return HM_FUNCTION(product<double>);
    case HX_I32: return HM_FUNCTION(product<int32_t>);
    case HX_I64: return HM_FUNCTION(product<int64_t>);
    case HX_U8: return HM_FUNCTION(product<uint8_t>);
    default: return nullptr;
  }
}
Function finish_function() { return HM_FUNCTION(finish); }

}  // namespace harmonics::cuda
