// Describes the steps of a plan for output.
#pragma once

#include "engine/execution/executable.hpp"

namespace harmonics::engine {

// Returns the name, scope, types, bytes written and arithmetic of the node.
PlanStep describe_step(const Program& program, const Node& node);

}  // namespace harmonics::engine
