// The built-in producers; they register like those of a plugin.
#pragma once

#include <harmonics/function.hpp>

namespace harmonics {

// file:, and both ends of memory:.
void register_builtin_producers(FunctionRegistry& registry);

}  // namespace harmonics
