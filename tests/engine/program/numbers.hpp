// Helpers to write and read tensors, and to test errors.
#pragma once

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <harmonics/ops.hpp>

#include "engine/program/op.hpp"

namespace harmonics::engine::testing {

inline HTensor f32(const Shape& shape, const std::vector<float>& values) { return HTensor::from(shape, values); }
inline HTensor f64(const Shape& shape, const std::vector<double>& values) { return HTensor::from(shape, values); }
inline HTensor i64(const Shape& shape, const std::vector<int64_t>& values) { return HTensor::from(shape, values); }

template <typename T>
std::vector<T> numbers(const HTensor& x) {
  return {x.data<T>(), x.data<T>() + x.size()};
}
// Returns elements of any type as doubles.
inline std::vector<double> doubles(const HTensor& x) { return numbers<double>(cast(x, DType::F64)); }

// Returns 0, 1, 2 ... in row-major order.
inline HTensor counting(DType dtype, const Shape& shape) {
  std::vector<int64_t> values(static_cast<size_t>(shape.count()));
  std::iota(values.begin(), values.end(), 0);
  return cast(HTensor::from(shape, values), dtype);
}

inline const std::vector<DType>& all_dtypes() {
  static const std::vector<DType> all{DType::Bool, DType::U8,  DType::I8,  DType::I16, DType::U16,
                                      DType::I32,  DType::U32, DType::I64, DType::U64, DType::F16,
                                      DType::BF16, DType::F32, DType::F64};
  return all;
}
inline std::vector<DType> number_dtypes() { return {all_dtypes().begin() + 1, all_dtypes().end()}; }

// Returns the error of `body` as "shape error: TEXT"; "nothing" if it throws nothing.
template <typename Body>
std::string refusal(Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    const std::string kind = e.kind() == ErrorKind::Shape  ? "shape"
                             : e.kind() == ErrorKind::Type ? "type"
                                                           : std::to_string(static_cast<uint32_t>(e.kind()));
    return kind + " error: " + e.what();
  }
  return "nothing";
}

}  // namespace harmonics::engine::testing
