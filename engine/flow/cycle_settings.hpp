// The parentheses of a cycle.
#pragma once

#include "engine/flow/graph.hpp"

namespace harmonics {

// Adds one condition or setting; unknown names, wrong types and repeated settings are errors with place.
void apply_condition(const CycleCondition& condition, CycleSettings& settings, Registry& registry);

}  // namespace harmonics
