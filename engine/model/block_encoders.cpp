#include "engine/model/block_encoders.hpp"

#include <utility>

#include <harmonics/element_conversion.hpp>
#include <harmonics/element_weighted.hpp>

namespace harmonics::engine {

namespace {

#if defined(__x86_64__)

// Sums have a fixed order and products are not fused, so that the bytes do not depend on the vectors. `flatten` inlines
// the encoders, which are otherwise compiled for every x86-64.
#define HM_WIDE_ENCODER(name, block)                                                                              \
  __attribute__((target("avx2"), flatten)) void name##_wide(const float* from, const float* weights, uint8_t* to, \
                                                            int64_t bytes, int64_t blocks) {                      \
    detail::BlockWeights kept;                                                                                    \
    for (int64_t i = 0; i < blocks; ++i, from += block, to += bytes)                                              \
      if (weights && kept.fill(weights + i * block, block))                                                       \
        detail::encode_##name(from, to, static_cast<const float*>(kept.values));                                  \
      else                                                                                                        \
        detail::encode_##name(from, to);                                                                          \
  }
HM_WIDE_ENCODER(q2_k, 256)
HM_WIDE_ENCODER(q3_k, 256)
HM_WIDE_ENCODER(q4_k, 256)
HM_WIDE_ENCODER(q5_k, 256)
HM_WIDE_ENCODER(q6_k, 256)
HM_WIDE_ENCODER(iq4_nl, 32)
HM_WIDE_ENCODER(iq4_xs, 256)
#undef HM_WIDE_ENCODER

using WideEncoder = void (*)(const float* from, const float* weights, uint8_t* to, int64_t bytes, int64_t blocks);
constexpr std::pair<DType, WideEncoder> kWideEncoders[] = {
    {DType::Q2_K, q2_k_wide}, {DType::Q3_K, q3_k_wide},     {DType::Q4_K, q4_k_wide},    {DType::Q5_K, q5_k_wide},
    {DType::Q6_K, q6_k_wide}, {DType::IQ4_NL, iq4_nl_wide}, {DType::IQ4_XS, iq4_xs_wide}};

WideEncoder wide_encoder(DType dtype) {
  static const bool supported = __builtin_cpu_supports("avx2") != 0;
  for (const auto& [type, encoder] : kWideEncoders)
    if (supported && type == dtype) return encoder;
  return nullptr;
}

#endif

}  // namespace

void encode_blocks(DType dtype, const float* from, const float* weights, void* to, int64_t count) {
#if defined(__x86_64__)
  const ElementType& type = element_type(dtype);
  if (const WideEncoder encode = wide_encoder(dtype); encode && count % type.block == 0)
    return encode(from, weights, static_cast<uint8_t*>(to), type.block_bytes, count / type.block);
#endif
  if (weights)
    encode_weighted(dtype, from, weights, to, count);
  else
    encode_elements(dtype, from, to, count);
}

}  // namespace harmonics::engine
