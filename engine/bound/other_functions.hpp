// What two flows compute on the same arrows.
#pragma once

#include <string>
#include <vector>

#include "engine/flow/graph.hpp"

namespace harmonics {

// Arrows of both graphs on which the functions, or their arguments, differ; those that act only while training are left
// out. "from 'x' to 'h' by relu, which is tanh now".
std::vector<std::string> other_functions(const Graph& learned, const Graph& now);

}  // namespace harmonics
