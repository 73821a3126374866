// Registers the built-in producers, like those of a plugin.
#pragma once

#include <harmonics/function.hpp>

namespace harmonics {

// Registers file: and both ends of memory:.
void register_builtin_producers(FunctionRegistry& registry);

}  // namespace harmonics
