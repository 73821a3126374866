// Conversion between f32 and the other float and stored types. This is the reference; kernels give the same bits.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include <harmonics/element_bits.hpp>
#include <harmonics/element_blocks.hpp>
#include <harmonics/element_scaled.hpp>
#include <harmonics/element_search.hpp>
#include <harmonics/element_type.hpp>

namespace harmonics {

namespace detail {

struct Conversion {
  DType dtype;
  void (*decode)(const uint8_t* block, float* to);
  void (*encode)(const float* from, uint8_t* block);
};

// Conversions of one block.
HARMONICS_FACE inline constexpr Conversion conversions[] = {
    {DType::F16, [](const uint8_t* b, float* to) { *to = half_to_float(load_u16(b)); },
     [](const float* from, uint8_t* b) { store_u16(b, float_to_half(*from)); }},
    {DType::BF16, [](const uint8_t* b, float* to) { *to = bfloat_to_float(load_u16(b)); },
     [](const float* from, uint8_t* b) { store_u16(b, float_to_bfloat(*from)); }},
    {DType::F32, [](const uint8_t* b, float* to) { std::memcpy(to, b, 4); },
     [](const float* from, uint8_t* b) { std::memcpy(b, from, 4); }},
    {DType::F8_E4M3, [](const uint8_t* b, float* to) { *to = e4m3_to_float(*b); },
     [](const float* from, uint8_t* b) { *b = float_to_e4m3(*from); }},
    {DType::F8_E5M2, [](const uint8_t* b, float* to) { *to = e5m2_to_float(*b); },
     [](const float* from, uint8_t* b) { *b = float_to_e5m2(*from); }},
    {DType::NF4,
     [](const uint8_t* b, float* to) { to[0] = normal_quantiles[*b >> 4], to[1] = normal_quantiles[*b & 15]; },
     [](const float* from, uint8_t* b) {
       *b = static_cast<uint8_t>(float_to_nf4(from[0]) << 4 | float_to_nf4(from[1]));
     }},
    {DType::I4,
     [](const uint8_t* b, float* to) {
       to[0] = static_cast<float>(static_cast<int8_t>(*b << 4) >> 4);
       to[1] = static_cast<float>(static_cast<int8_t>(*b) >> 4);
     },
     [](const float* from, uint8_t* b) {
       *b = static_cast<uint8_t>((float_to_i4(from[0]) & 15) | (float_to_i4(from[1]) & 15) << 4);
     }},
    {DType::Q8_0, decode_q8_0, encode_q8_0},
    {DType::Q4_0, decode_q4_0, encode_q4_0},
    {DType::Q4_K, decode_q4_k, encode_q4_k},
    {DType::Q6_K, decode_q6_k, encode_q6_k},
    {DType::Q4_1, decode_q4_1, encode_q4_1},
    {DType::Q5_0, decode_q5_0, encode_q5_0},
    {DType::Q5_1, decode_q5_1, encode_q5_1},
    {DType::Q2_K, decode_q2_k, encode_q2_k},
    {DType::Q3_K, decode_q3_k, encode_q3_k},
    {DType::Q5_K, decode_q5_k, encode_q5_k},
    {DType::IQ4_NL, decode_iq4_nl, encode_iq4_nl},
    {DType::MXFP4, decode_mxfp4, encode_mxfp4},
    {DType::IQ4_XS, decode_iq4_xs, encode_iq4_xs},
    {DType::NF4_64, decode_nf4_64, encode_nf4_64},
    {DType::FP4_64, decode_fp4_64, encode_fp4_64},
    {DType::E4M3_64, decode_e4m3_64, encode_e4m3_64},
};

HARMONICS_FACE inline const Conversion* find_conversion(DType dtype) {
  for (const Conversion& row : conversions)
    if (row.dtype == dtype) return &row;
  return nullptr;
}

HARMONICS_FACE inline const Conversion& need_conversion(DType dtype, int64_t count) {
  const Conversion* row = find_conversion(dtype);
  if (!row)
    throw Error(ErrorKind::Type, std::string(element_type(dtype).name) + " has no conversion to the bits of f32");
  run_bytes(dtype, count);
  return *row;
}

}  // namespace detail

// Converts `count` elements, whole blocks, of f16, bf16, f32 or a stored type to f32.
HARMONICS_FACE inline void decode_elements(DType dtype, const void* from, float* to, int64_t count) {
  const auto& row = detail::need_conversion(dtype, count);
  const ElementType& type = element_type(dtype);
  const auto* p = static_cast<const uint8_t*>(from);
  for (int64_t i = 0; i < count; i += type.block, p += type.block_bytes) row.decode(p, to + i);
}

// Converts `count` elements of f32 to such a type.
HARMONICS_FACE inline void encode_elements(DType dtype, const float* from, void* to, int64_t count) {
  const auto& row = detail::need_conversion(dtype, count);
  const ElementType& type = element_type(dtype);
  auto* p = static_cast<uint8_t*>(to);
  for (int64_t i = 0; i < count; i += type.block, p += type.block_bytes) row.encode(from + i, p);
}

}  // namespace harmonics
