// The built-in consumers; they register like those of a plugin.
#pragma once

#include <harmonics/function.hpp>

namespace harmonics {

// stdout: and file:.
void register_builtin_consumers(FunctionRegistry& registry);

}  // namespace harmonics
