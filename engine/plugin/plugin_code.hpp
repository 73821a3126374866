// Finds the plugin whose code contains an address. Safe in signal handlers.
#pragma once

#include <string>

namespace harmonics::engine {

struct PluginCode {
  const char* id;    // of the plugin
  const char* path;  // of its file
};

// Records the object loaded with `symbol` as the plugin's code. Only the first thousand libraries are recorded.
void remember_code(const std::string& id, const std::string& path, const void* symbol);
// Returns null for an unknown address. Takes no lock and allocates no memory.
const PluginCode* plugin_at(const void* address);

}  // namespace harmonics::engine
