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

// Size and modification time of a file, to detect a new build. All zero: the file is missing.
struct FileStamp {
  long long bytes = 0, seconds = 0, nanoseconds = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
FileStamp stamp_of(const std::string& path);

// An opened shared library. Never closed, because closing a library with GNU unique symbols makes objects crash that
// still use them.
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

// Returns the function table for a library built for this minor version of contract 1; defined in engine/contract.
// Versions before 1.4 do not check attributes of calls.
const hx_api* api_for(uint16_t minor);

// Reads the descriptor from the file without running code. Throws ErrorKind::Plugin with the reason when the file is
// not a plugin: not ELF, no descriptor, other contract ("is built for contract 1.3, this program has 0.1").
hx_plugin_abi read_descriptor(const std::string& path);

// Opens a plugin and registers all its items, or none on failure. Throws ErrorKind::NoInput if the file cannot be
// reached, ErrorKind::Denied as check_trust(), and otherwise ErrorKind::Plugin with the reason (missing symbol or
// library, exception while registering).
void load_plugin(const std::string& path, Registry& registry = Registry::global());
// Same, without first trying to open the file in a child process (trial.hpp): for processes that may crash.
void load_untried(const std::string& path, Registry& registry);
// Same as load_plugin for a library that its manifest announced. Its items do not replace items registered since then.
void load_announced(const std::string& path, Registry& registry);

// Opens the file again, although an earlier build is open, and returns the items it registers. Throws as load_plugin.
std::vector<std::shared_ptr<Item>> load_beside(const std::string& path);

// Throws ErrorKind::Denied if users other than this one and root could have replaced the file: they own, or can write,
// the file, its folder, or the folder of the link that leads to it.
void check_trust(const std::string& path);

// Returns the search directories in order: HARMONICS_PLUGIN_PATH, the user's data directory, and
// <prefix>/lib/harmonics/plugins of the running program or library.
std::vector<std::string> plugin_search_path();
// Reads a manifest: one kind and name per line, at most 1 MiB. Throws ErrorKind::Plugin with file and line if it is
// malformed.
std::vector<std::pair<uint32_t, std::string>> read_manifest(const std::string& path);
std::vector<std::pair<uint32_t, std::string>> parse_manifest(const std::string& text, const std::string& path);

}  // namespace harmonics::engine
