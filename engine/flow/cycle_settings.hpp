// Conditions and settings in the parentheses of a cycle.
#pragma once

#include "engine/flow/graph.hpp"

namespace harmonics::engine {

// Applies one condition or setting. Throws errors with a location for unknown names, wrong types and repeated settings.
void apply_condition(const CycleCondition& condition, CycleSettings& settings, Registry& registry);

}  // namespace harmonics::engine
