// The streams that live in the library register as a plugin's do; their folders define these.
#pragma once

#include <harmonics/function.hpp>

namespace harmonics {

void register_builtin_producers(FunctionRegistry& registry);  // producers/
void register_builtin_consumers(FunctionRegistry& registry);  // consumers/

}  // namespace harmonics
