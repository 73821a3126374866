// Compares the functions of two flows on the same arrows.
#pragma once

#include <string>
#include <vector>

#include "engine/flow/graph.hpp"

namespace harmonics::engine {

// Returns a text for each arrow of both graphs whose functions or arguments differ, such as "from 'x' to 'h' by relu,
// which is tanh now". Functions that act only in training are ignored.
std::vector<std::string> other_functions(const Graph& learned, const Graph& now);

}  // namespace harmonics::engine
