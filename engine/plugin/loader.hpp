// Opening plugins: descriptor, version check, registration, search path.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/plugin/registry.hpp"

namespace boost::dll {
class shared_library;
}

namespace harmonics::engine {

// Size and modification time of a file, to recognize a new build. All zero: the file is missing.
struct FileStamp {
  long long bytes = 0, seconds = 0, nanoseconds = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
FileStamp stamp_of(const std::string& path);

// An opened shared library. Never closed in this process: objects of plugins with unique symbols would crash.
class Library {
 public:
  Library(std::string path, const boost::dll::shared_library& opened, FileStamp stamp)
      : path_(std::move(path)), opened_(opened), stamp_(stamp) {}
  const std::string& path() const { return path_; }
  void* symbol(const char* name) const;              // null: not found
  const FileStamp& stamp() const { return stamp_; }  // of the file at opening

 private:
  std::string path_;
  const boost::dll::shared_library& opened_;
  FileStamp stamp_;
};

// The functions for a library built for this minor version of contract 1, as engine/contract defines them. Until 1.4
// attributes of calls were not checked.
const hx_api* api_for(uint16_t minor);

// Reads the descriptor from the file without running code. Throws ErrorKind::Plugin with the reason when the file is
// not a plugin: not ELF, no descriptor, other contract ("is built for contract 1.3, this program has 0.1").
hx_plugin_abi read_descriptor(const std::string& path);

// Opens a plugin and registers all its items, or none on failure. Throws ErrorKind::Plugin naming the file and the
// reason (missing file, refused directory, missing symbol or library, exception while registering).
void load_plugin(const std::string& path, Registry& registry = Registry::global());
// The same in a process that may crash: without a trial in a child process first (trial.hpp).
void load_untried(const std::string& path, Registry& registry);
// The same for a library whose manifest was announced. Its items do not replace items registered since.
void load_announced(const std::string& path, Registry& registry);

// Returns the items that the file at `path` registers now. The earlier build stays open. Throws as load_plugin.
std::vector<std::shared_ptr<Item>> load_beside(const std::string& path);

// Throws ErrorKind::Plugin when users other than this one and root could have written the file. The file and the
// folders of its path must belong to one of the two, without write access for others.
void check_trust(const std::string& path);

// Returns the search directories in order: HARMONICS_PLUGIN_PATH, the user's data directory,
// <prefix>/lib/harmonics/plugins beside the running program or library.
std::vector<std::string> plugin_search_path();
// Reads kinds and names, one per line, at most 1 MiB. Throws ErrorKind::Plugin with file and line for a malformed
// manifest.
std::vector<std::pair<uint32_t, std::string>> read_manifest(const std::string& path);
std::vector<std::pair<uint32_t, std::string>> parse_manifest(const std::string& text, const std::string& path);

}  // namespace harmonics::engine
