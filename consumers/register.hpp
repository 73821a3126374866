// The consumers that live in the library; they register as a plugin's do.
#pragma once

#include <harmonics/function.hpp>

namespace harmonics {

// stdout: and file:.
void register_builtin_consumers(FunctionRegistry& registry);

}  // namespace harmonics
