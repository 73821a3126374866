// Tensors of stored types with every bit of their blocks random.
#pragma once

#include "kernel_call.hpp"

#include <vector>

#include <harmonics/element_conversion.hpp>

namespace harmonics::engine::kernel_tests {

// Returns the offsets of the f16 numbers in blocks whose scales are searched for.
inline std::vector<size_t> searched_scales(DType type) {
  switch (type) {
    case DType::Q4_K:
    case DType::Q5_K:
      return {0, 2};
    case DType::Q2_K:
      return {80, 82};
    case DType::Q3_K:
      return {108};
    case DType::Q6_K:
      return {208};
    case DType::IQ4_NL:
    case DType::IQ4_XS:
      return {0};
    default:
      return {};
  }
}
// Likewise for every type; mxfp4 has a power of two in a byte.
inline std::vector<size_t> scales_of(DType type) {
  switch (type) {
    case DType::Q8_0:
    case DType::Q4_0:
    case DType::Q5_0:
      return {0};
    case DType::Q4_1:
    case DType::Q5_1:
      return {0, 2};
    default:
      return searched_scales(type);
  }
}

template <typename Scale>
void set_scales(Tensor& t, Scale next) {
  const auto type = static_cast<DType>(t.dtype);
  const size_t size = element_type(type).block_bytes;
  for (size_t block = 0; block < t.bytes.size(); block += size) {
    if (type == DType::MXFP4) t.bytes[block] = 125;
    for (const size_t at : scales_of(type)) {
      const uint16_t scale = float_to_half(next());
      std::memcpy(t.bytes.data() + block + at, &scale, 2);
    }
  }
}

// Returns random numbers of the type, or random bytes and small scales, which cover every bit of the block.
inline Tensor of_type(DType type, Dims dims, Random& random) {
  Tensor t = Tensor::zeros(dims, static_cast<uint32_t>(type));
  if (searched_scales(type).empty()) {
    const Tensor x = random.floats(dims);
    encode_elements(type, x.data<float>(), t.bytes.data(), x.size());
    return t;
  }
  for (char& b : t.bytes) b = static_cast<char>(random.below(256));
  set_scales(t, [&] { return 0.01f + 0.001f * static_cast<float>(random.below(10)); });
  return t;
}

inline Tensor decoded(const Tensor& t) {
  std::vector<float> numbers(static_cast<size_t>(t.size()));
  decode_elements(static_cast<DType>(t.dtype), t.bytes.data(), numbers.data(), t.size());
  return {t.dims, numbers};
}

}  // namespace harmonics::engine::kernel_tests
