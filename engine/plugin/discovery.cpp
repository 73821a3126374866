#include "engine/plugin/discovery.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <dirent.h>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include "engine/base/file.hpp"
#include "engine/base/foreign_file.hpp"
#include "engine/base/read_file.hpp"
#include "engine/plugin/descriptor.hpp"
#include "engine/plugin/loader.hpp"

namespace harmonics::engine {

namespace {

constexpr size_t kLargestCache = 16 << 20;

using Stamp = FileStamp;

struct Entry {
  Stamp library, manifest;
  FoundPlugin found;
};
using Entries = std::map<std::string, Entry>;

std::string manifest_of(const std::string& library) { return library.substr(0, library.size() - 3) + ".manifest"; }

// Returns the first line of the cache. A cache with another format or contract version is ignored.
std::string heading() { return fmt::format("harmonics plugins 2, contract {}.{}", HX_ABI_MAJOR, HX_ABI_MINOR); }

// Returns the last line, with a checksum of the lines before it. Not portable: with another implementation of
// std::hash the cache is discarded.
std::string ending(std::string_view before) {
  return fmt::format("end\t{:016x}\n", std::hash<std::string_view>()(before));
}

// Returns the text without its last line, or an empty text if it is incomplete or was changed.
std::string_view checked(std::string_view text) {
  const size_t last = text.size() - std::min(text.size(), ending({}).size());
  const std::string_view before = text.substr(0, last);
  return text.substr(last) == ending(before) ? before : std::string_view();
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (size_t at = 0;;) {
    const size_t end = line.find('\t', at);
    fields.push_back(line.substr(at, end - at));
    if (end == std::string_view::npos) return fields;
    at = end + 1;
  }
}

bool number(std::string_view text, long long& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool stamp(const std::vector<std::string_view>& f, size_t at, Stamp& s) {
  return number(f[at], s.bytes) && number(f[at + 1], s.seconds) && number(f[at + 2], s.nanoseconds);
}

// Reads lines of tab-separated fields: "plugin" path, stamp of the library, stamp of the manifest, id, version,
// trouble; "has" kind, name; "end", checksum. Returns nothing if a line is malformed or the checksum differs.
Entries read_cache(const std::string& path) {
  std::error_code failed;
  if (path.empty() || !std::filesystem::is_regular_file(path, failed) || !is_own(path)) return {};
  std::string file;
  try {
    file = read_file(path, kLargestCache);
  } catch (const Error&) {
    return {};
  }
  const std::string_view text = checked(file);
  Entries entries;
  Entry* last = nullptr;
  bool first = true;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    at = end + 1;
    if (std::exchange(first, false)) {
      if (line != heading()) return {};
      continue;
    }
    const std::vector<std::string_view> f = fields_of(line);
    if (f[0] == "plugin" && f.size() == 11) {
      Entry e;
      if (!stamp(f, 2, e.library) || !stamp(f, 5, e.manifest)) return {};
      e.found = {std::string(f[1]), std::string(f[8]), std::string(f[9]), e.manifest != Stamp{}, {},
                 std::string(f[10])};
      last = &(entries[e.found.library] = std::move(e));
    } else if (long long kind = 0; f[0] == "has" && f.size() == 3 && last && number(f[1], kind) && kind > 0) {
      last->found.provides.emplace_back(static_cast<uint32_t>(kind), f[2]);
    } else {
      return {};
    }
  }
  return entries;
}

bool fits_a_line(const std::string& text) { return text.find_first_of("\t\n") == std::string::npos; }

// Skips fsync, which takes longer than reading the libraries again. A cache damaged by a power failure is discarded.
class Unsynced final : public FileCalls {
 public:
  int sync(int) override { return 0; }
};

void write_cache(const std::string& path, const std::vector<Entry>& entries) {
  std::string text = heading() + "\n";
  for (const Entry& e : entries) {
    const FoundPlugin& p = e.found;
    if (!fits_a_line(p.library) || !fits_a_line(p.id) || !fits_a_line(p.version) || !fits_a_line(p.trouble))
      continue;  // not cached
    text += fmt::format("plugin\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", p.library, e.library.bytes,
                        e.library.seconds, e.library.nanoseconds, e.manifest.bytes, e.manifest.seconds,
                        e.manifest.nanoseconds, p.id, p.version, p.trouble);
    for (const auto& [kind, name] : p.provides) text += fmt::format("has\t{}\t{}\n", kind, name);
  }
  text += ending(text);
  try {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    Unsynced calls;
    write_file_atomically(path, text, calls);
  } catch (const Error&) {  // for example a read-only home directory: nothing is cached
  }
}

// Returns the paths of libraries, including missing ones that have a manifest.
std::vector<std::string> libraries_of(const std::string& directory) {
  std::set<std::string> found;
  DIR* open = ::opendir(directory.c_str());
  if (!open) return {};
  while (const dirent* entry = ::readdir(open)) {
    const std::string name = entry->d_name;
    const auto ends = [&](std::string_view with) {
      return name.size() > with.size() && name.compare(name.size() - with.size(), with.size(), with) == 0;
    };
    if (ends(".so")) found.insert(directory + "/" + name);
    if (ends(".manifest")) found.insert(directory + "/" + name.substr(0, name.size() - 9) + ".so");
  }
  ::closedir(open);
  return {found.begin(), found.end()};
}

FoundPlugin look_into(const std::string& library, const Entry& stamps) {
  FoundPlugin p{library, "", "", stamps.manifest != Stamp{}, {}, ""};
  try {
    if (stamps.library == Stamp{})
      throw Error(ErrorKind::Plugin, fmt::format("'{}' has a manifest, but does not exist", library));
    if (p.has_manifest) p.provides = read_manifest(manifest_of(library));
    const hx_plugin_abi descriptor = read_descriptor(library);
    p.id = descriptor.id;
    p.version = descriptor.version;
  } catch (const Error& e) {
    p.trouble = e.what();
  }
  return p;
}

}  // namespace

Discovery discover_plugins(const std::vector<std::string>& directories, const std::string& cache) {
  const Entries known = read_cache(cache);
  std::vector<Entry> entries;
  Discovery discovery;
  for (const std::string& directory : directories)
    for (const std::string& library : libraries_of(directory)) {
      Entry e{stamp_of(library), stamp_of(manifest_of(library)), {}};
      const auto before = known.find(library);
      if (before != known.end() && before->second.library == e.library && before->second.manifest == e.manifest) {
        e.found = before->second.found;
      } else {
        e.found = look_into(library, e);
        ++discovery.looked_into;
      }
      entries.push_back(std::move(e));
    }
  if (!cache.empty() && (discovery.looked_into || entries.size() != known.size())) write_cache(cache, entries);
  for (Entry& e : entries) discovery.plugins.push_back(std::move(e.found));
  return discovery;
}

std::string plugin_cache_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache && *cache) return std::string(cache) + "/harmonics/plugins";
  return home && *home ? std::string(home) + "/.cache/harmonics/plugins" : "";
}

void announce(const Discovery& discovery, Registry& registry) {
  for (const FoundPlugin& p : discovery.plugins)
    if (!p.trouble.empty())
      registry.pass_over(p.trouble);
    else if (p.has_manifest)
      registry.announce(p.library, p.provides);
}

}  // namespace harmonics::engine
