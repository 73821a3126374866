// Opening plugins: descriptor, version check, registration, search path.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/plugin/registry.hpp"

namespace boost::dll {
class shared_library;
}

namespace harmonics {

// Size and time of the last change of a file, by which another build is known; all zero: there is no such file.
struct FileStamp {
  long long bytes = 0, seconds = 0, nanoseconds = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
FileStamp stamp_of(const std::string& path);

// An opened shared library. Never closed while the process lives (objects of plugins with unique symbols would crash).
class Library {
 public:
  Library(std::string path, const boost::dll::shared_library& opened, FileStamp stamp)
      : path_(std::move(path)), opened_(opened), stamp_(stamp) {}
  const std::string& path() const { return path_; }
  void* symbol(const char* name) const;              // null: it has none of that name
  const FileStamp& stamp() const { return stamp_; }  // of the file when it was opened

 private:
  std::string path_;
  const boost::dll::shared_library& opened_;
  FileStamp stamp_;
};

// The descriptor as read from the file without running code; ErrorKind::Plugin with the reason when the file is no
// plugin: not ELF, no descriptor, other contract ("is built for contract 1.3, this program speaks 0.1").
hx_plugin_abi read_descriptor(const std::string& path);

// Opens a plugin and registers everything it has, or nothing when it fails. Throws ErrorKind::Plugin naming the file
// and the reason (missing file, refused directory, missing symbol or library, exception while registering).
void load_plugin(const std::string& path, Registry& registry = Registry::global());
// The same in a process that may crash: not tried in a child before (trial.hpp).
void load_untried(const std::string& path, Registry& registry);
// The same for a library whose manifest was announced: what it has yields to what was registered since.
void load_announced(const std::string& path, Registry& registry);

// What the file at `path` registers now, opened beside what was opened from there before. Throws as load_plugin.
std::vector<std::shared_ptr<Item>> load_beside(const std::string& path);

// Throws ErrorKind::Plugin when somebody other than the user and root could have put the file there: the file and the
// folders it is reached through belong to one of them and nobody else may write to them.
void check_trust(const std::string& path);

// Directories searched, in order: HARMONICS_PLUGIN_PATH, the user's data directory, <prefix>/lib/harmonics/plugins
// beside the running program or library.
std::vector<std::string> plugin_search_path();
// Kinds and names, a line each, at most 1 MiB; ErrorKind::Plugin with file and line when a manifest cannot be
// understood.
std::vector<std::pair<uint32_t, std::string>> read_manifest(const std::string& path);
std::vector<std::pair<uint32_t, std::string>> parse_manifest(const std::string& text, const std::string& path);
// Called once by Registry::global(): the library's own streams. Defined in engine/functional/builtin_items.cpp.
void register_builtin_items(Registry& registry);

}  // namespace harmonics
