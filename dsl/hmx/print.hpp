// Prints a Flow as text.
#pragma once

#include <string>

#include "engine/flow/flow.hpp"

namespace harmonics::engine {

// Prints the canonical form: declarations, flows, cycles, indented by two spaces. Parsing it gives an equal flow.
std::string to_text(const Flow& flow);
std::string to_text(const Harmonic& harmonic);
std::string to_text(const FlowLine& flow);  // one line, including ';'
std::string to_text(const Call& call);
std::string to_text(const ArgumentValue& value);

}  // namespace harmonics::engine
