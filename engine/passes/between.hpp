// Extracts the part of a program between two values.
#pragma once

#include <string>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// Returns the program that computes output `to`, its only output, from output `from`, which becomes the input `input`.
// Keeps the necessary parameters, states and inputs; removes updates. Throws ErrorKind::Name for a missing output, with
// a list of outputs with the same prefix.
Program between(const Program& program, const std::string& from, const std::string& input, const std::string& to);

}  // namespace harmonics::engine
