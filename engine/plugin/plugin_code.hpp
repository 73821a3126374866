// Which plugin's code lies at an address: for handlers of signals, which may ask nobody else.
#pragma once

#include <string>

namespace harmonics {

struct PluginCode {
  const char* id;    // of the plugin
  const char* path;  // of its file
};

// What was loaded together with `symbol` is of this plugin. Of the first thousand libraries; later ones are not known.
void remember_code(const std::string& id, const std::string& path, const void* symbol);
// Null: of none that is known. Takes no lock and no memory.
const PluginCode* plugin_at(const void* address);

}  // namespace harmonics
