// Implements hx_api.register_item. Items stay pending until their library has registered everything without error.
#pragma once

#include <string>
#include <string_view>

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

// Copies names, descriptions and schema. Takes ownership of `self`, even if it throws (ErrorKind::Plugin).
// `extension`: the extension that registers the item, such as "hx.importer/0"; "": the contract itself.
void add_pending(hx_registry& registry, const hx_item& item, std::string_view extension = {});

// Returns the reason of the first refusal by add_pending() on this thread since the last call; "" if there was none.
// Kinds that this version does not know do not count: a plugin may offer them to later versions.
std::string take_refusal();

// Moves the pending items into the registry.
void commit_pending(hx_registry& pending, Registry& registry);

}  // namespace harmonics::engine
