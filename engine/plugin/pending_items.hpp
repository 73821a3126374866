// What hx_api.register_item does: an item waits until its library has registered everything without error.
#pragma once

#include "engine/plugin/registry.hpp"

namespace harmonics {

// Copies names, descriptions and schema, and owns `self` from here on, also when it throws (ErrorKind::Plugin).
void add_pending(hx_registry& registry, const hx_item& item);

// Moves what waits into the registry.
void commit_pending(hx_registry& pending, Registry& registry);

}  // namespace harmonics
