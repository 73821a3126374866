// Turns a comparison of gradients with finite differences into a finding for the function's author.
#pragma once

#include <functional>

#include "engine/conformance/gradient_check.hpp"
#include "engine/conformance/item_checks.hpp"

namespace harmonics::engine {

// Compares in double if the function accepts it, else in float with a larger step; a missing gradient is noted.
Finding gradient_finding(const std::function<GradientComparison(DType, GradientTolerance)>& compare);

}  // namespace harmonics::engine
