// Registers the built-in consumers, like those of a plugin.
#pragma once

#include <harmonics/function.hpp>

namespace harmonics {

// Registers stdout: and file:.
void register_builtin_consumers(FunctionRegistry& registry);

}  // namespace harmonics
