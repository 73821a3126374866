// Bodies in the place of calls, within one program.
#pragma once

#include <functional>

#include "engine/program/program.hpp"

namespace harmonics {

// Replaces call nodes by their bodies where they stand; values keep their ids, so handles stay good. `chosen` is asked once
// about every node in its final order, those of expanded bodies included, and may change what computes its results; nodes that
// are no calls must not be chosen.
void expand_calls(Program& program, const std::function<bool(Node&)>& chosen);

}  // namespace harmonics
