// Finds the plugins in the search directories and the items they provide, without running their code.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

struct FoundPlugin {
  std::string library;                                     // path of the .so
  std::string id, version;                                 // from the descriptor; id "": named after the file
  bool has_manifest = false;                               // false: the library is only loaded by --plugin
  std::vector<std::pair<uint32_t, std::string>> provides;  // kinds and names from its manifest
  std::string trouble;                                     // why it cannot be used; "": usable
};

struct Discovery {
  std::vector<FoundPlugin> plugins;  // by directory, then by name
  size_t looked_into = 0;            // number of libraries that were read; the others came from the cache
};

// Reads *.so and *.manifest of each directory; missing directories count as empty. `cache` ("": none) is a file that
// caches results by path, size and modification time, and is rewritten after changes. A cache that is damaged, of
// another format, world-writable or owned by another user is ignored. Does not throw for unusable plugins.
Discovery discover_plugins(const std::vector<std::string>& directories, const std::string& cache = "");

// Returns $XDG_CACHE_HOME/harmonics/plugins, or ~/.cache/harmonics/plugins, or "" without a home directory.
std::string plugin_cache_path();

// Announces the items of usable libraries with a manifest; the first library that announces a name wins. Records the
// unusable libraries.
void announce(const Discovery& discovery, Registry& registry);

}  // namespace harmonics::engine
