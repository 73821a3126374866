// Compares the functions of two flows on the same arrows.
#pragma once

#include <string>
#include <vector>

#include "engine/flow/graph.hpp"

namespace harmonics::engine {

// Returns the arrows of both graphs whose functions or arguments differ, without functions that act only in training.
// "from 'x' to 'h' by relu, which is tanh now".
std::vector<std::string> other_functions(const Graph& learned, const Graph& now);

}  // namespace harmonics::engine
