// Calls in source form, as `inspect` shows them for functionals and primitives.
#pragma once

#include <optional>
#include <string>

#include "engine/conformance/call_examples.hpp"

namespace harmonics::engine {

// A call of a library functional or primitive with the fewest inputs and attributes that work. Empty: no example is
// known.
std::optional<CallExample> shortest_call(const std::string& op);

// Source text: `call("linear", {x, weight})  // x f32[3, 2], weight f32[5, 2]`
std::string call_text(const CallExample& call);

}  // namespace harmonics::engine
