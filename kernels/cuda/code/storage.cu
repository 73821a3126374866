// quantize and dequantize, with one scale and zero point per tensor or per index of an axis.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

// y = saturate(round_half_to_even(x / scale) + zero); NaN gives the zero point.
template <typename T>
__global__ void quantize(const float* x, const float* scale, const T* zero, T* y, ChannelsParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const uint32_t c = i / p.inner % p.size;
  const float steps = rintf(x[i] / scale[c]);
  // A million exceeds the range of every stored type with any zero point.
  const int32_t whole = steps != steps ? 0
                                       : static_cast<int32_t>(steps < -1e6f  ? -1e6f
                                                              : steps > 1e6f ? 1e6f
                                                                             : steps),
                moved = whole + static_cast<int32_t>(zero[c]);
  constexpr int32_t kLeast = T(-1) < T(0) ? -(1 << (8 * sizeof(T) - 1)) : 0,
                    kMost = (1 << (8 * sizeof(T) - (T(-1) < T(0) ? 1 : 0))) - 1;
  y[i] = static_cast<T>(moved < kLeast ? kLeast : moved > kMost ? kMost : moved);
}

template <typename T>
__global__ void dequantize(const T* x, const float* scale, const T* zero, float* y, ChannelsParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const uint32_t c = i / p.inner % p.size;
  y[i] = static_cast<float>(static_cast<int64_t>(x[i]) - static_cast<int64_t>(zero[c])) * scale[c];
}

}  // namespace

#define HM_BY_STORED(kernel)                         \
  (dtype == HX_U8    ? HM_FUNCTION(kernel<uint8_t>)  \
   : dtype == HX_I8  ? HM_FUNCTION(kernel<int8_t>)   \
   : dtype == HX_U16 ? HM_FUNCTION(kernel<uint16_t>) \
   : dtype == HX_I16 ? HM_FUNCTION(kernel<int16_t>)  \
                     : nullptr)
Function quantize_function(uint32_t dtype) { return HM_BY_STORED(quantize); }
Function dequantize_function(uint32_t dtype) {
  return dtype == HX_I32 ? HM_FUNCTION(dequantize<int32_t>) : HM_BY_STORED(dequantize);
}

}  // namespace harmonics::cuda
