// Chooses the results of a program.
#pragma once

#include <functional>
#include <string>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// Returns the program with only those outputs that `wanted` accepts. Entries of models offer every value that can be
// observed as an output; dce() then removes what is not observed.
Program observe(Program program, const std::function<bool(const std::string& output)>& wanted);

}  // namespace harmonics::engine
