// Inlines calls within a program.
#pragma once

#include <functional>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// Replaces call nodes by their bodies in place; values keep their ids, so handles stay valid. `chosen` is called once
// for every node in final order, inlined ones included, and returns whether to inline it; it may also replace the node.
// It must not return true for nodes that are not calls.
void expand_calls(Program& program, const std::function<bool(Node&)>& chosen);

}  // namespace harmonics::engine
