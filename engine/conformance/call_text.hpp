// Calls as an author writes them: what `inspect` shows of functionals and primitives.
#pragma once

#include <optional>
#include <string>

#include "engine/conformance/call_examples.hpp"

namespace harmonics {

// A call of the library's functional or of a primitive that works with the fewest inputs and attributes. Empty: no
// tensors to try it on are known.
std::optional<CallExample> shortest_call(const std::string& op);

// `call("linear", {x, weight})  // x f32[3, 2], weight f32[5, 2]`
std::string call_text(const CallExample& call);

}  // namespace harmonics
