// Description of a plan's step for output.
#pragma once

#include "engine/execution/executable.hpp"

namespace harmonics::engine {

// Describes the node: name, scope, types, bytes written, arithmetic.
PlanStep describe_step(const Program& program, const Node& node);

}  // namespace harmonics::engine
