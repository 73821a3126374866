// The producers that live in the library; they register as a plugin's do.
#pragma once

#include <harmonics/function.hpp>

namespace harmonics {

// file:, and both ends of memory:.
void register_builtin_producers(FunctionRegistry& registry);

}  // namespace harmonics
