// Which plugins lie in the directories that are searched, and what they provide: read from files, without running any
// code of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/plugin/registry.hpp"

namespace harmonics {

struct FoundPlugin {
  std::string library;                                     // path of the .so
  std::string id, version;                                 // as its descriptor says; id "": by file name
  bool has_manifest = false;                               // without, only --plugin finds it
  std::vector<std::pair<uint32_t, std::string>> provides;  // kinds and names, as its manifest says
  std::string trouble;                                     // why it cannot be used; "": nothing is known against it
};

struct Discovery {
  std::vector<FoundPlugin> plugins;  // by directory, then by name
  size_t looked_into = 0;            // libraries whose files were read; the others were as the cache had them
};

// Looks at *.so and *.manifest of each directory; directories that are not there have none. `cache` is a file that
// remembers what was found, by path, sizes and times ("": none); it is written again when something changed. One that
// is damaged, of another release, or that others may write to is left alone and made anew. Never throws for what lies
// in the directories.
Discovery discover_plugins(const std::vector<std::string>& directories, const std::string& cache = "");

// $XDG_CACHE_HOME/harmonics/plugins, or ~/.cache/harmonics/plugins; "" where there is no home.
std::string plugin_cache_path();

// Announces what has a manifest and no trouble, of two libraries with a name the first; passes over what has.
void announce(const Discovery& discovery, Registry& registry);

}  // namespace harmonics
