// Selects the outputs of a program.
#pragma once

#include <functional>
#include <string>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// Removes outputs that `wanted` rejects. Entries of models declare all observable values as outputs; dce() then removes
// the nodes that only computed rejected ones.
Program observe(Program program, const std::function<bool(const std::string& output)>& wanted);

}  // namespace harmonics::engine
