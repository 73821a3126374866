// Dispatch from a runtime element type to a C++ type.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "engine/program/op.hpp"
#include "engine/tensor/half.hpp"

namespace harmonics::engine {

// Arithmetic type of a stored T: float for 16-bit floats, else T.
template <typename T>
using Computed = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

template <typename T>
inline constexpr bool is_float_element = std::is_floating_point_v<Computed<T>>;

// Calls body(std::type_identity<T>{}) with the C++ type of dtype: bool, integers, Half, BFloat16, float, double.
template <typename Body>
decltype(auto) visit_dtype(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::Bool:
      return body(std::type_identity<bool>{});
    case DType::U8:
      return body(std::type_identity<uint8_t>{});
    case DType::I8:
      return body(std::type_identity<int8_t>{});
    case DType::I16:
      return body(std::type_identity<int16_t>{});
    case DType::U16:
      return body(std::type_identity<uint16_t>{});
    case DType::I32:
      return body(std::type_identity<int32_t>{});
    case DType::U32:
      return body(std::type_identity<uint32_t>{});
    case DType::I64:
      return body(std::type_identity<int64_t>{});
    case DType::U64:
      return body(std::type_identity<uint64_t>{});
    case DType::F16:
      return body(std::type_identity<Half>{});
    case DType::BF16:
      return body(std::type_identity<BFloat16>{});
    case DType::F32:
      return body(std::type_identity<float>{});
    case DType::F64:
      return body(std::type_identity<double>{});
    default:
      break;
  }
  throw Error(ErrorKind::Internal, "element type " + std::to_string(static_cast<uint32_t>(dtype)) + " has no C++ type");
}

// Converts like `cast`. To bool: non-zero is true. Float to integer: truncates and saturates; NaN becomes 0.
template <typename To, typename From>
To convert_element(From stored) {
  const Computed<From> x = static_cast<Computed<From>>(stored);
  if constexpr (std::is_same_v<To, bool>) {
    return x != Computed<From>{};
  } else if constexpr (is_float_element<To>) {
    return To(static_cast<Computed<To>>(x));
  } else if constexpr (is_float_element<From>) {
    if (std::isnan(x)) return To{};
    const double d = static_cast<double>(x);
    if (d <= static_cast<double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (d >= static_cast<double>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(d);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace harmonics::engine
