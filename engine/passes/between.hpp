// Cuts a program out between two of its values.
#pragma once

#include <string>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// What computes the output `to` from the output `from`, which becomes the input `input`; the only output keeps its
// name. Other leaves stay if they are needed: parameters, states, inputs. Without updates. Throws ErrorKind::Name if
// the program lacks an output, with those it has that begin alike.
Program between(const Program& program, const std::string& from, const std::string& input, const std::string& to);

}  // namespace harmonics::engine
