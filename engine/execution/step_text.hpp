// A step of a plan as people see it.
#pragma once

#include "engine/execution/executable.hpp"

namespace harmonics {

// What the node is: name, scope, types, bytes written, arithmetic.
PlanStep describe_step(const Program& program, const Node& node);

}  // namespace harmonics
