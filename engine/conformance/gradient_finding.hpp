// What a comparison of gradients with finite differences says to the author of a function.
#pragma once

#include <functional>

#include "engine/conformance/gradient_check.hpp"
#include "engine/conformance/item_checks.hpp"

namespace harmonics {

// Compares in double where the function takes it, else in float with a coarser step; what has no gradient is noted.
Finding gradient_finding(const std::function<GradientComparison(DType, GradientTolerance)>& compare);

}  // namespace harmonics
