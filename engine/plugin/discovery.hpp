// Finds the plugins in the search directories and what they provide. Reads files only, and runs no code of plugins.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

struct FoundPlugin {
  std::string library;                                     // path of the .so
  std::string id, version;                                 // from the descriptor; if id is "", from the file name
  bool has_manifest = false;                               // without it, only --plugin finds the library
  std::vector<std::pair<uint32_t, std::string>> provides;  // kinds and names from its manifest
  std::string trouble;                                     // why it cannot be used; "": no known problem
};

struct Discovery {
  std::vector<FoundPlugin> plugins;  // by directory, then by name
  size_t looked_into = 0;            // number of libraries that were read; the others came from the cache
};

// Reads *.so and *.manifest of each directory; missing directories count as empty. `cache` is a file of the results by
// path, sizes and times ("": none), which is rewritten after changes. A cache that is damaged, of another release, or
// writable by other users is ignored and replaced. Never throws for contents of the directories.
Discovery discover_plugins(const std::vector<std::string>& directories, const std::string& cache = "");

// Returns $XDG_CACHE_HOME/harmonics/plugins, or ~/.cache/harmonics/plugins, or "" without a home directory.
std::string plugin_cache_path();

// Announces libraries with a manifest and no trouble. Of two libraries with the same name the first counts. Records
// the unusable ones.
void announce(const Discovery& discovery, Registry& registry);

}  // namespace harmonics::engine
