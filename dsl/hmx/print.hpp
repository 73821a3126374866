// A Flow as text again.
#pragma once

#include <string>

#include "engine/runtime/flow.hpp"

namespace harmonics {

// Canonical form: declarations, then flows, then cycles, two spaces a level. Parsing it gives an equal flow.
std::string to_text(const Flow& flow);
std::string to_text(const Harmonic& harmonic);
std::string to_text(const FlowLine& flow);  // one line, with its ';'
std::string to_text(const Call& call);
std::string to_text(const ArgumentValue& value);

}  // namespace harmonics
