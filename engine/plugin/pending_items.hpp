// Implements hx_api.register_item: items wait until their library has registered everything without error.
#pragma once

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

// Copies names, descriptions and schema. Takes ownership of `self`, also when it throws (ErrorKind::Plugin).
void add_pending(hx_registry& registry, const hx_item& item);

// Moves the waiting items into the registry.
void commit_pending(hx_registry& pending, Registry& registry);

}  // namespace harmonics::engine
