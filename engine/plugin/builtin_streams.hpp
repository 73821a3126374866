// The built-in streams register as a plugin's do. Their folders define these functions.
#pragma once

#include <harmonics/function.hpp>

namespace harmonics {

void register_builtin_producers(FunctionRegistry& registry);  // producers/
void register_builtin_consumers(FunctionRegistry& registry);  // consumers/

}  // namespace harmonics
