// What sums and products of a stored type are made in.
#pragma once

#include "engine/program/ops/dispatch.hpp"

namespace harmonics {

// f64 for f64, f32 for the other floats, unsigned 64-bit for integers (so that they wrap instead of overflowing).
template <typename T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, double>, double, std::conditional_t<is_float_element<T>, float, uint64_t>>;

}  // namespace harmonics
