// Element types and tensor types.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <harmonics/stream.hpp>

namespace harmonics::engine {

inline std::string_view dtype_name(DType dtype) { return element_type(dtype).name; }
inline bool is_float(DType dtype) { return element_type(dtype).kind == ElementKind::Float; }
inline bool is_integer(DType dtype) { return element_type(dtype).kind == ElementKind::Integer; }
// Returns the type of a name such as "f32". Throws ErrorKind::Type with the nearest known name.
DType dtype_named(std::string_view name);

struct TensorType {
  DType dtype = DType::F32;
  Shape shape;

  size_t bytes() const { return tensor_bytes(dtype, shape); }
  std::string str() const;  // "f32[64, 784]"
  friend bool operator==(const TensorType& a, const TensorType& b) { return a.dtype == b.dtype && a.shape == b.shape; }
  friend bool operator!=(const TensorType& a, const TensorType& b) { return !(a == b); }
};

TensorType from_c(const hx_type& type);  // checks dtype, rank, signs, whole blocks and size overflow
hx_type to_c(const TensorType& type);

}  // namespace harmonics::engine
