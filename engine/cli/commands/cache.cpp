// harmonics cache: lists the files in the user's cache folder by the names of what they contain, and removes them.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/model/packed_files.hpp"
#include "kernels/shared/program_files.hpp"

namespace harmonics::engine::cli {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

struct CachedFile {
  std::string kind, file;  // `file`: path below the cache folder
  std::string name, of;    // "chain", and the device or type that it is for
  uint64_t bytes = 0;
  bool damaged = false, listed = true;  // files beside packed weights are not listed, but counted and removed
};

// Returns the names of the kernels in the source of a program, as "queries_of, keys_of".
std::string kernels_in(const std::string& source) {
  constexpr std::string_view kOpenings[] = {"kernel void ", "kernel __attribute__((", "__global__ void "},
                             kVoid = "void ";
  std::vector<std::string> names;
  for (const std::string_view opening : kOpenings)
    for (size_t at = source.find(opening); at != std::string::npos; at = source.find(opening, at + 1)) {
      const size_t result = source.find(kVoid, at);  // after the attributes
      if (result == std::string::npos) break;
      const size_t begin = result + kVoid.size(), end = source.find('(', begin);
      const std::string name = source.substr(begin, end - begin);
      if (end != std::string::npos && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  return comma_separated(names);
}

void name_program(const std::string& path, CachedFile& entry) {
  const auto from = kernels::ProgramFile::made_from(path);
  entry.damaged = !from || from->size() < 3;
  if (entry.damaged) return;
  entry.name = kernels_in(from->back());
  entry.of = (*from)[1];  // the device, or the architecture
}

void name_packed(const std::string& path, CachedFile& entry) {
  entry.listed = path.ends_with(".pack");
  if (!entry.listed) return;
  const std::optional<PackedName> name = packed_name_of(path);
  entry.damaged = !name;
  if (!name) return;
  entry.name = name->packing;
  entry.of = name->type;
}

struct CacheKind {
  const char *name, *contents;       // the name of a file or folder in the cache folder
  std::vector<std::string> endings;  // of the files in a folder; empty: a file
  void (*describe)(const std::string& path, CachedFile& entry);
};

const std::vector<CacheKind>& cache_kinds() {
  static const std::vector<CacheKind> all = {
      {"opencl", "", {".bin"}, name_program},
      {"cuda", "", {".bin"}, name_program},
      {"packed", "", {".pack", ".of", ".whole"}, name_packed},
      {"plugins", "libraries on the search path", {}, nullptr},
      {"plugins-opened", "libraries that were opened without a crash", {}, nullptr},
      {"product-rates", "speeds of products and the processor's peak", {}, nullptr}};
  return all;
}

std::optional<CachedFile> cached_file(const CacheKind& kind, const fs::path& folder, const fs::path& path) {
  std::error_code failed;
  if (fs::symlink_status(path, failed).type() != fs::file_type::regular) return std::nullopt;
  CachedFile entry{kind.name, path.lexically_relative(folder).string(), kind.contents, ""};
  entry.bytes = fs::file_size(path, failed);
  if (failed) return std::nullopt;  // just removed
  if (kind.describe) kind.describe(path.string(), entry);
  return entry;
}

bool has_cache_ending(const std::string& name, const CacheKind& kind) {
  return std::any_of(kind.endings.begin(), kind.endings.end(),
                     [&](const std::string& ending) { return name.ends_with(ending); });
}

// Returns the entries of these kinds, of all if there are none, in the order of kinds and file names.
std::vector<CachedFile> cached_files(const fs::path& folder, const std::vector<std::string>& kinds) {
  std::vector<CachedFile> all;
  for (const CacheKind& kind : cache_kinds()) {
    if (!kinds.empty() && std::find(kinds.begin(), kinds.end(), kind.name) == kinds.end()) continue;
    if (kind.endings.empty()) {
      if (auto entry = cached_file(kind, folder, folder / kind.name)) all.push_back(*std::move(entry));
      continue;
    }
    const size_t first = all.size();
    std::error_code failed;
    for (const auto& file : fs::directory_iterator(folder / kind.name, failed)) {
      if (!has_cache_ending(file.path().filename().string(), kind)) continue;
      if (auto entry = cached_file(kind, folder, file.path())) all.push_back(*std::move(entry));
    }
    std::sort(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(),
              [](const CachedFile& a, const CachedFile& b) { return a.file < b.file; });
  }
  return all;
}

json::value null_if_empty(const std::string& text) { return text.empty() ? json::value(nullptr) : json::value(text); }

json::object row_of(const CachedFile& e) {
  return {{"kind", e.kind},   {"name", null_if_empty(e.name)}, {"of", null_if_empty(e.of)}, {"file", e.file},
          {"bytes", e.bytes}, {"damaged", e.damaged}};
}

int list_cache(const fs::path& folder, const std::vector<CachedFile>& all, const Options& options) {
  uint64_t bytes = 0;
  json::array rows;
  for (const CachedFile& e : all) {
    bytes += e.bytes;
    if (!e.listed) continue;
    if (options.json)
      rows.push_back(row_of(e));
    else
      print("{:<14} {:>13}  {}{}  {}\n", e.kind, thousands(static_cast<int64_t>(e.bytes)),
            e.damaged ? "damaged" : e.name, e.of.empty() ? "" : " (" + e.of + ")", e.file);
  }
  if (options.json)
    print_json(json::object{
        {"version", 1}, {"folder", null_if_empty(folder.string())}, {"bytes", bytes}, {"entries", std::move(rows)}});
  else
    print("{} in {}\n", number_of(bytes, "byte"), folder.empty() ? "no folder" : folder.string());
  return kDone;
}

// A file that another process has just removed counts as removed.
int clear_cache(const fs::path& folder, const std::vector<CachedFile>& all, const Options& options) {
  uint64_t bytes = 0, removed = 0;
  for (const CachedFile& e : all) {
    std::error_code failed;
    fs::remove(folder / e.file, failed);
    if (failed)
      throw Error(ErrorKind::Denied,
                  fmt::format("cannot remove '{}': {}", (folder / e.file).string(), failed.message()))
          .note("check the permissions of the folder");
    bytes += e.bytes;
    ++removed;
  }
  if (options.json)
    print_json(json::object{
        {"version", 1}, {"folder", null_if_empty(folder.string())}, {"removed", removed}, {"bytes", bytes}});
  else
    print("removed {} with {} from {}\n", number_of(removed, "file"), number_of(bytes, "byte"),
          folder.empty() ? "no folder" : folder.string());
  return kDone;
}

}  // namespace

int cache_command(const Options& options) {
  const std::string packed = packed_files_folder();  // "": the environment names no folder
  const fs::path folder = packed.empty() ? fs::path() : fs::path(packed).parent_path();
  const std::vector<std::string> kinds(options.files.begin() + 1, options.files.end());
  const std::vector<CachedFile> all = packed.empty() ? std::vector<CachedFile>() : cached_files(folder, kinds);
  return options.files.front() == "list" ? list_cache(folder, all, options) : clear_cache(folder, all, options);
}

}  // namespace harmonics::engine::cli
