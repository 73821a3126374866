// From a DType known at run time to the C++ type of its elements.
#pragma once

#include <type_traits>

#include "engine/tensor/half.hpp"
#include "engine/tensor/type.hpp"

namespace harmonics {

// Calls f(T{}) with T: bool, uint8_t ... double, Half, BFloat16.
template <typename F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::Bool: return f(bool{});
    case DType::U8: return f(uint8_t{});
    case DType::I8: return f(int8_t{});
    case DType::I16: return f(int16_t{});
    case DType::U16: return f(uint16_t{});
    case DType::I32: return f(int32_t{});
    case DType::U32: return f(uint32_t{});
    case DType::I64: return f(int64_t{});
    case DType::U64: return f(uint64_t{});
    case DType::F16: return f(Half{});
    case DType::BF16: return f(BFloat16{});
    case DType::F32: return f(float{});
    case DType::F64: return f(double{});
  }
  throw Error(ErrorKind::Internal, "no element type has the number " + std::to_string(static_cast<uint32_t>(dtype)));
}

template <typename T>
inline constexpr bool is_float_type = std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

// What sums of T are made in: f64 for f64, f32 for the other floats, unsigned 64-bit (which wraps) for integers.
template <typename T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, std::conditional_t<is_float_type<T>, float, uint64_t>>;

}  // namespace harmonics
