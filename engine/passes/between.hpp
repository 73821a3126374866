// Extracts the part of a program between two values.
#pragma once

#include <string>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// Returns the program that computes output `to` from output `from`, which becomes the input `input`. `to` is its only
// output. Needed parameters, states and inputs stay; updates are removed. Throws ErrorKind::Name for a missing output
// and lists outputs with the same prefix.
Program between(const Program& program, const std::string& from, const std::string& input, const std::string& to);

}  // namespace harmonics::engine
