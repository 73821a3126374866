// Inlines calls within a program.
#pragma once

#include <functional>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// Replaces call nodes by their bodies in place. Values keep their ids, so handles stay valid. `chosen` is called once
// for every node in final order, including inlined nodes, and returns whether to inline it; it may also modify the
// node. It must not return true for nodes that are not calls.
void expand_calls(Program& program, const std::function<bool(Node&)>& chosen);

}  // namespace harmonics::engine
