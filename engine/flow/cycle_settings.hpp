// Conditions and settings in the parentheses of a cycle.
#pragma once

#include "engine/flow/graph.hpp"

namespace harmonics::engine {

// Adds one condition or setting. Unknown names, wrong types and repeated settings are errors with their location.
void apply_condition(const CycleCondition& condition, CycleSettings& settings, Registry& registry);

}  // namespace harmonics::engine
