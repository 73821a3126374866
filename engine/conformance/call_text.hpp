// Formats calls of functionals and primitives as source text, for `inspect`.
#pragma once

#include <optional>
#include <string>

#include "engine/conformance/call_examples.hpp"

namespace harmonics::engine {

// Returns a call of a functional or primitive of the library with as few inputs and attributes as possible; none if no
// example is known.
std::optional<CallExample> shortest_call(const std::string& op);

// Returns the source text `call("linear", {x, weight})  // x f32[3, 2], weight f32[5, 2]`.
std::string call_text(const CallExample& call);

}  // namespace harmonics::engine
