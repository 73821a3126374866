// Functions of tensor types for planning code of devices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <harmonics/element_type.hpp>

namespace harmonics::kernels {

inline int64_t count(const hx_type& t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t.rank; ++i) n *= t.dims[i];
  return n;
}
// Stride of each axis, in elements.
inline std::vector<int64_t> strides(const hx_type& t) {
  std::vector<int64_t> s(t.rank, 1);
  for (uint32_t i = t.rank; i-- > 1;) s[i - 1] = s[i] * t.dims[i];
  return s;
}
// Strides of an input broadcast to y, by axis of y.
inline std::vector<int64_t> broadcast_strides(const hx_type& x, const hx_type& y) {
  const auto own = strides(x);
  std::vector<int64_t> s(y.rank, 0);
  for (uint32_t i = 0; i < x.rank; ++i) s[y.rank - x.rank + i] = x.dims[i] == 1 ? 0 : own[i];
  return s;
}
inline std::vector<int64_t> dims(const hx_type& t) { return {t.dims, t.dims + t.rank}; }
inline int64_t last(const hx_type& t) { return t.rank ? t.dims[t.rank - 1] : 1; }
inline bool same_shape(const hx_type& a, const hx_type& b) {
  return a.rank == b.rank && std::equal(a.dims, a.dims + a.rank, b.dims);
}
inline bool is_f32(const hx_type& t) { return t.dtype == HX_F32; }

// Bytes of an element. Not for stored types, whose elements have no width; devices decline them before planning.
inline uint32_t width(uint32_t dtype) { return static_cast<uint32_t>(element_bytes(static_cast<DType>(dtype))); }
inline bool is_stored(uint32_t dtype) { return harmonics::is_stored(static_cast<DType>(dtype)); }
inline bool is_signed(uint32_t dtype) {
  return dtype == HX_I8 || dtype == HX_I16 || dtype == HX_I32 || dtype == HX_I64;
}
inline bool is_half(uint32_t dtype) { return dtype == HX_F16 || dtype == HX_BF16; }
inline bool is_float(uint32_t dtype) { return dtype == HX_F32 || dtype == HX_F64 || is_half(dtype); }

}  // namespace harmonics::kernels
