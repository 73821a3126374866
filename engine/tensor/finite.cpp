#include "engine/tensor/finite.hpp"

#include <cmath>
#include <limits>

namespace harmonics::engine {

namespace {

// The bits of infinity. Without the sign, those of finite numbers are smaller and those of NaN larger.
constexpr uint16_t kHalfInfinity = 0x7c00, kBFloatInfinity = 0x7f80;

template <uint16_t kInfinity>
bool is_bad(uint16_t bits) {
  return (bits & 0x7fff) >= kInfinity;
}
template <typename T>
bool is_bad(T v) {
  return !(std::abs(v) <= std::numeric_limits<T>::max());
}

template <typename T, typename Bad>
int64_t find(const void* data, int64_t count, Bad bad) {
  constexpr int64_t kBlock = 256;  // fixed length, so that the compiler vectorises the loop
  const T* const p = static_cast<const T*>(data);
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    unsigned any = 0;
    for (int64_t k = 0; k < kBlock; ++k) any |= static_cast<unsigned>(bad(p[i + k]));
    if (any) break;
  }
  for (; i < count; ++i)
    if (bad(p[i])) return i;
  return -1;
}

}  // namespace

int64_t first_not_finite(DType dtype, const void* data, int64_t count) {
  switch (dtype) {
    case DType::F16:
      return find<uint16_t>(data, count, is_bad<kHalfInfinity>);
    case DType::BF16:
      return find<uint16_t>(data, count, is_bad<kBFloatInfinity>);
    case DType::F32:
      return find<float>(data, count, is_bad<float>);
    case DType::F64:
      return find<double>(data, count, is_bad<double>);
    default:
      return -1;
  }
}

BadRows rows_not_finite(DType dtype, const void* data, int64_t rows, int64_t elements) {
  BadRows bad;
  const int64_t at = elements > 0 ? first_not_finite(dtype, data, rows * elements) : -1;
  if (at < 0) return bad;
  bad.first = at / elements;
  const auto* row = static_cast<const std::byte*>(data);
  const auto bytes = static_cast<size_t>(elements) * element_bytes(dtype);
  for (int64_t i = bad.first; i < rows; ++i)
    bad.rows += first_not_finite(dtype, row + static_cast<size_t>(i) * bytes, elements) >= 0;
  return bad;
}

}  // namespace harmonics::engine
