// Reports a comparison of gradients with finite differences as a finding.
#pragma once

#include <functional>

#include "engine/conformance/gradient_check.hpp"
#include "engine/conformance/item_checks.hpp"

namespace harmonics::engine {

// Compares in double precision, or in single precision with a larger step if the function does not accept double. A
// missing gradient is reported as a note.
Finding gradient_finding(const std::function<GradientComparison(DType, GradientTolerance)>& compare);

}  // namespace harmonics::engine
