#include "engine/base/nearest_file.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "engine/base/spelling.hpp"

namespace harmonics::engine {

std::string advice_for_missing(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr size_t kMostLooked = 10000;
  std::error_code failed;
  const fs::path given(path), folder = given.parent_path();
  if (fs::exists(given, failed)) return "";
  if (path == "-") return "'-' is the name of a file here: standard input is /dev/stdin";
  if (fs::is_symlink(given, failed))
    return "it is a symbolic link to '" + fs::read_symlink(given, failed).string() + "', which does not exist";
  if (!folder.empty() && !fs::is_directory(folder, failed)) return "there is no folder '" + folder.string() + "'";
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.empty() ? fs::path(".") : folder, failed)) {
    if (names.size() == kMostLooked) break;
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  if (const auto near = nearest(given.filename().string(), names))
    return "did you mean '" + (folder / *near).string() + "'?";
  const fs::path here = fs::current_path(failed);
  return given.is_absolute() || failed ? "" : "relative paths start in " + here.string();
}

}  // namespace harmonics::engine
