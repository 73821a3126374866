// Implements hx_api.register_item. Items stay pending until their library has registered everything without error.
#pragma once

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

// Copies names, descriptions and schema. Takes ownership of `self`, even if it throws (ErrorKind::Plugin).
// `extension`: the extension that registers the item, such as "hx.importer/0"; "": the contract itself.
void add_pending(hx_registry& registry, const hx_item& item, std::string_view extension = {});

// Moves the pending items into the registry.
void commit_pending(hx_registry& pending, Registry& registry);

}  // namespace harmonics::engine
