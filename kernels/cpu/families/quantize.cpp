// Conversion between f32 and integers of 8 to 32 bits with a scale and a zero point.
#include "../family.hpp"

#include <cstdint>

namespace harmonics::cpu {
namespace {

// [outer, channels, inner]; each channel has a scale and a zero point.
struct QuantizeContext {
  int64_t outer, channels, inner;
  uint32_t dtype;  // of the integers
  uint32_t parts;  // divide outer * channels, or the elements if there is one channel
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include <harmonics/abi.h>

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Calls visit(channel, begin, end) for runs of elements of one channel.
template <typename Visit>
HM_INLINE void for_channels(const QuantizeContext& c, uint32_t part, Visit visit) {
  if (c.outer * c.channels == 1) {
    const Range all = share(c.inner, c.parts, part);
    return visit(0, all.begin, all.end);
  }
  const Range rows = share(c.outer * c.channels, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) visit(r % c.channels, r * c.inner, (r + 1) * c.inner);
}

// Rounds to nearest, ties to even, and saturates; NaN gives the zero point.
template <typename T>
void quantize_all(const QuantizeContext& c, void* const* buffers, int32_t least, int32_t most, uint32_t part) {
  const float *x = static_cast<const float*>(buffers[0]), *scales = static_cast<const float*>(buffers[1]);
  const T* zeros = static_cast<const T*>(buffers[2]);
  T* y = static_cast<T*>(buffers[3]);
  for_channels(c, part, [&](int64_t channel, int64_t begin, int64_t end) {
    const float scale = scales[channel];
    const int32_t zero = zeros[channel];
    const auto low = static_cast<float>(least - zero), high = static_cast<float>(most - zero);  // exact
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) {
      float steps = __builtin_nearbyintf(x[i] / scale);
      steps = steps != steps ? 0.0f : steps < low ? low : steps > high ? high : steps;
      y[i] = static_cast<T>(static_cast<int32_t>(steps) + zero);
    }
  });
}

template <typename T>
void dequantize_all(const QuantizeContext& c, void* const* buffers, uint32_t part) {
  const T *q = static_cast<const T*>(buffers[0]), *zeros = static_cast<const T*>(buffers[2]);
  const float* scales = static_cast<const float*>(buffers[1]);
  float* y = static_cast<float*>(buffers[3]);
  for_channels(c, part, [&](int64_t channel, int64_t begin, int64_t end) {
    const float scale = scales[channel];
    if constexpr (sizeof(T) < 4) {
      const int32_t zero = zeros[channel];
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) y[i] = static_cast<float>(q[i] - zero) * scale;
    } else {
      const int64_t zero = zeros[channel];
      for (int64_t i = begin; i < end; ++i) y[i] = static_cast<float>(q[i] - zero) * scale;
    }
  });
}

}  // namespace

void quantize(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const QuantizeContext*>(context);
  if (c.dtype == HX_I8) return quantize_all<int8_t>(c, buffers, INT8_MIN, INT8_MAX, part);
  if (c.dtype == HX_U8) return quantize_all<uint8_t>(c, buffers, 0, UINT8_MAX, part);
  if (c.dtype == HX_I16) return quantize_all<int16_t>(c, buffers, INT16_MIN, INT16_MAX, part);
  quantize_all<uint16_t>(c, buffers, 0, UINT16_MAX, part);
}

void dequantize(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const QuantizeContext*>(context);
  if (c.dtype == HX_I8) return dequantize_all<int8_t>(c, buffers, part);
  if (c.dtype == HX_U8) return dequantize_all<uint8_t>(c, buffers, part);
  if (c.dtype == HX_I16) return dequantize_all<int16_t>(c, buffers, part);
  if (c.dtype == HX_U16) return dequantize_all<uint16_t>(c, buffers, part);
  dequantize_all<int32_t>(c, buffers, part);
}

}  // namespace harmonics::cpu::HM_ISA

#else

HM_VECTOR_CODE(quantize)
HM_VECTOR_CODE(dequantize)

namespace harmonics::cpu {
namespace {

bool plan_quantize(const Site& site, hx_kernel& out) {
  const bool back = site.op() == "dequantize";
  const hx_type &x = site.in(0), &scale = site.in(1), &real = back ? site.out() : x;
  const uint32_t whole = back ? x.dtype : site.out().dtype;
  if (!is_f32(real) || !is_f32(scale) || x.rank == 0) return false;
  auto c = std::make_unique<QuantizeContext>();
  c->dtype = whole;
  c->outer = 1;
  c->channels = count(scale);
  c->inner = count(x);
  if (scale.rank > 0) {
    c->inner = strides(x)[static_cast<size_t>(site.integer("axis"))];
    c->outer = count(x) / (c->channels * c->inner);
  }
  c->parts = parts_for(0.3 * static_cast<double>(count(x)), scale.rank > 0 ? c->outer * c->channels : count(x));
  answer(out, std::move(c), back ? chosen::dequantize() : chosen::quantize(), back ? "dequantize" : "quantize");
  return true;
}

}  // namespace

HM_PLANS(quantize, {"quantize", plan_quantize}, {"dequantize", plan_quantize})

}  // namespace harmonics::cpu

#endif
