#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <link.h>

#include <fmt/core.h>

#include "engine/base/read_file.hpp"
#include "formats/utf8.hpp"
#include "engine/plugin/kinds.hpp"
#include "engine/plugin/loader.hpp"

namespace harmonics::engine {

namespace fs = std::filesystem;

namespace {

// Returns the file that contains this code: libharmonics.so in an embedding program, or the program itself.
fs::path own_file() {
  Dl_info info{};
  void* map = nullptr;
  std::error_code ignored;
  const auto here = reinterpret_cast<const void*>(&plugin_search_path);
  if (dladdr1(here, &info, &map, RTLD_DL_LINKMAP) && map && static_cast<const link_map*>(map)->l_name[0])
    return fs::canonical(static_cast<const link_map*>(map)->l_name, ignored);
  return fs::canonical("/proc/self/exe", ignored);
}

// Adds <prefix>/lib/harmonics/plugins for a file in <prefix>/bin, <prefix>/lib or <prefix>/lib/<machine>.
void add_beside_own_file(std::vector<std::string>& result) {
  fs::path at = own_file().parent_path();
  for (int up = 0; up < 3 && at.has_relative_path(); ++up, at = at.parent_path()) {
    const fs::path candidate = at / "lib" / "harmonics" / "plugins";
    std::error_code ignored;
    if (fs::is_directory(candidate, ignored)) return result.push_back(candidate.string());
  }
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

// Parses one "activation relu" per line. Empty lines and text after '#' are ignored.
std::vector<std::pair<uint32_t, std::string>> parse_manifest(const std::string& text, const std::string& path) {
  std::vector<std::pair<uint32_t, std::string>> names;
  size_t number = 1;
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.find(' ');
    const uint32_t kind = kind_named(line.substr(0, space));
    const std::string name = space == std::string::npos ? "" : line.substr(space + 1);
    if (!kind || !is_item_name(name))
      throw Error(ErrorKind::Plugin, fmt::format("{}:{}: '{}' is not a kind and a name", path, number, printable(line)))
          .note("a line of a manifest reads like: activation relu");
    names.emplace_back(kind, name);
  }
  return names;
}

std::vector<std::pair<uint32_t, std::string>> read_manifest(const std::string& path) {
  constexpr size_t kLargest = 1 << 20;
  std::string text;
  try {
    text = read_file(path, kLargest);
  } catch (const Error& e) {
    throw Error(ErrorKind::Plugin, fmt::format("manifest '{}' cannot be read: {}", path, e.what()));
  }
  return parse_manifest(text, path);
}

std::vector<std::string> plugin_search_path() {
  std::vector<std::string> result;
  const std::string own = variable("HARMONICS_PLUGIN_PATH");
  for (size_t start = 0; start < own.size();) {
    const size_t end = std::min(own.find(':', start), own.size());
    if (end > start) result.push_back(own.substr(start, end - start));
    start = end + 1;
  }
  const std::string data = variable("XDG_DATA_HOME"), home = variable("HOME");
  if (!data.empty())
    result.push_back(data + "/harmonics/plugins");
  else if (!home.empty())
    result.push_back(home + "/.local/share/harmonics/plugins");
  add_beside_own_file(result);
  return result;
}

}  // namespace harmonics::engine
