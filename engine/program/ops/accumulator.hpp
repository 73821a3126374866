// Accumulator types of sums and products.
#pragma once

#include "engine/program/ops/dispatch.hpp"

namespace harmonics::engine {

// f64 for f64, f32 for other floats, unsigned 64-bit for integers (which wrap instead of overflowing).
template <typename T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, double>, double, std::conditional_t<is_float_element<T>, float, uint64_t>>;

}  // namespace harmonics::engine
