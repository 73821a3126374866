// Encoders with weighted errors, for quantization by the importance of columns. They minimise the sum of weight times
// squared error. Types that are encoded by a fixed rule (f16, q8_0, mxfp4, ...) ignore the weights.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include <harmonics/element_conversion.hpp>

namespace harmonics {

namespace detail {

HARMONICS_FACE inline constexpr int longest_block = 256;

// Weights of a block, raised to a small fraction of their mean, so that elements with zero weight keep some precision.
struct BlockWeights {
  float values[longest_block];
  HARMONICS_FACE bool fill(const float* weights, int n) {
    double total = 0;
    for (int i = 0; i < n; ++i) total += weight_at(weights, i);
    if (!(total > 0) || !std::isfinite(total)) return false;
    const float least = static_cast<float>(total / n * 1e-4);
    for (int i = 0; i < n; ++i) values[i] = std::fmax(weights[i], least);
    return true;
  }
};

// q4_0 and q5_0: (index - levels) * scale.
template <int kLevels>
HARMONICS_FACE uint16_t symmetric_indices(const float* from, const float* weights, uint8_t* indices) {
  const uint16_t scale = float_to_half(symmetric_run<32>(from, kLevels, weights));
  const float step = half_to_float(scale), inverse = step != 0 ? 1 / step : 0;
  for (int i = 0; i < 32; ++i) indices[i] = static_cast<uint8_t>(EvenSteps<kLevels>::index(from[i] * inverse));
  return scale;
}

// q4_1 and q5_1: index * scale + minimum. The best of several candidates after rounding.
struct RoundedPair {
  uint16_t scale = 0, least = 0;  // f16
  double error = HUGE_VAL;
};
template <int kLevels>
HARMONICS_FACE RoundedPair affine_indices(const float* from, const float* weights, uint8_t* indices) {
  const auto [low, high] = std::minmax_element(from, from + 32);
  RoundedPair best;
  double sum = 0, total = 0;
  for (int i = 0; i < 32; ++i) {
    sum += weight_at(weights, i) * static_cast<double>(from[i]);
    total += weight_at(weights, i);
  }
  // Candidates map the smallest element to index 0, or to at most 0.75.
  for (int candidate = 0; candidate < 44; ++candidate) {
    const double shift = 0.25 * (candidate % 4), top = kLevels - shift + 0.15 * (candidate / 4 - 5);
    double step = (static_cast<double>(*high) - static_cast<double>(*low)) / top,
           base = static_cast<double>(*low) - shift * step;
    for (int turn = 0; turn < 3; ++turn) {
      RoundedPair pair{float_to_half(static_cast<float>(step)), float_to_half(static_cast<float>(base)), 0};
      const float scale = half_to_float(pair.scale), least = half_to_float(pair.least), inverse = inverse_of(scale);
      uint8_t found[32];
      double count = 0, squares = 0, products = 0;
      for (int i = 0; i < 32; ++i) {
        const int q = nearest_index((from[i] - least) * inverse, kLevels);
        const double w = weight_at(weights, i),
                     e = static_cast<double>(scale * static_cast<float>(q) + least) - static_cast<double>(from[i]);
        found[i] = static_cast<uint8_t>(q);
        count += w * q;
        squares += w * q * q;
        products += w * q * static_cast<double>(from[i]);
        pair.error += w * e * e;
      }
      if (pair.error < best.error || !std::isfinite(best.error)) {  // not finite: scales beyond f16
        best = pair;
        std::memcpy(indices, found, sizeof found);
      }
      const double determinant = total * squares - count * count;
      if (!(determinant > 0)) break;
      step = (total * products - count * sum) / determinant;
      base = (sum - step * count) / total;
    }
  }
  return best;
}

HARMONICS_FACE inline void encode_q4_0(const float* from, uint8_t* block, const float* weights) {
  if (refuse_block(from, 32, block, 18)) return;
  uint8_t indices[32];
  store_u16(block, symmetric_indices<8>(from, weights, indices));
  for (int i = 0; i < 16; ++i) block[2 + i] = static_cast<uint8_t>(indices[i] | indices[i + 16] << 4);
}

HARMONICS_FACE inline void encode_q5_0(const float* from, uint8_t* block, const float* weights) {
  if (refuse_block(from, 32, block, 22)) return;
  uint8_t indices[32];
  store_u16(block, symmetric_indices<16>(from, weights, indices));
  store_five_bits(block + 2, [&](int i) { return int{indices[i]}; });
}

HARMONICS_FACE inline void encode_q4_1(const float* from, uint8_t* block, const float* weights) {
  if (refuse_block(from, 32, block, 20)) return;
  uint8_t indices[32];
  const RoundedPair pair = affine_indices<15>(from, weights, indices);
  store_u16(block, pair.scale);
  store_u16(block + 2, pair.least);
  for (int i = 0; i < 16; ++i) block[4 + i] = static_cast<uint8_t>(indices[i] | indices[i + 16] << 4);
}

HARMONICS_FACE inline void encode_q5_1(const float* from, uint8_t* block, const float* weights) {
  if (refuse_block(from, 32, block, 24)) return;
  uint8_t indices[32];
  const RoundedPair pair = affine_indices<31>(from, weights, indices);
  store_u16(block, pair.scale);
  store_u16(block + 2, pair.least);
  store_five_bits(block + 4, [&](int i) { return int{indices[i]}; });
}

using WeightedEncoder = void (*)(const float* from, uint8_t* block, const float* weights);
struct WeightedConversion {
  DType dtype;
  WeightedEncoder encode;
};
HARMONICS_FACE inline constexpr WeightedConversion weighted_conversions[] = {
    {DType::Q4_0, encode_q4_0},     {DType::Q4_1, encode_q4_1},     {DType::Q5_0, encode_q5_0},
    {DType::Q5_1, encode_q5_1},     {DType::Q2_K, encode_q2_k},     {DType::Q3_K, encode_q3_k},
    {DType::Q4_K, encode_q4_k},     {DType::Q5_K, encode_q5_k},     {DType::Q6_K, encode_q6_k},
    {DType::IQ4_NL, encode_iq4_nl}, {DType::IQ4_XS, encode_iq4_xs},
};

}  // namespace detail

// Whether encode_weighted() uses the weights for this type.
HARMONICS_FACE inline bool has_weighted_encoder(DType dtype) {
  for (const detail::WeightedConversion& row : detail::weighted_conversions)
    if (row.dtype == dtype) return true;
  return false;
}

// Encodes `count` elements, whole blocks, each with a non-negative weight. A block with only zero weights is encoded as
// by encode_elements().
HARMONICS_FACE inline void encode_weighted(DType dtype, const float* from, const float* weights, void* to,
                                           int64_t count) {
  const detail::Conversion& plain = detail::need_conversion(dtype, count);
  detail::WeightedEncoder encode = nullptr;
  for (const detail::WeightedConversion& row : detail::weighted_conversions)
    if (row.dtype == dtype) encode = row.encode;
  const ElementType& type = element_type(dtype);
  auto* p = static_cast<uint8_t*>(to);
  detail::BlockWeights block;
  for (int64_t i = 0; i < count; i += type.block, p += type.block_bytes)
    if (encode && block.fill(weights + i, static_cast<int>(type.block)))
      encode(from + i, p, block.values);
    else
      plain.encode(from + i, p);
}

}  // namespace harmonics
