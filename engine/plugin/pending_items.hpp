// Implements hx_api.register_item: items wait until their library has registered everything without error.
#pragma once

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

// Copies names, descriptions and schema. Takes ownership of `self`, also when it throws (ErrorKind::Plugin).
// `extension`: by which the item comes, "hx.importer/0"; "": by the contract itself.
void add_pending(hx_registry& registry, const hx_item& item, std::string_view extension = {});

// Moves the waiting items into the registry.
void commit_pending(hx_registry& pending, Registry& registry);

}  // namespace harmonics::engine
