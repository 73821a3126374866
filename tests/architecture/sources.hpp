// The sources of the repository and what they include.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace harmonics::engine::testing {

namespace fs = std::filesystem;

inline const fs::path kRoot = HARMONICS_SOURCE_DIR;
// The folders of the engine. Each may include those before it.
inline const std::vector<std::string> kEngine = {
    "base",        "tensor",     "plugin",   "program",     "functional", "contract", "passes", "execution", "model",
    "transformer", "language",   "training", "spool",       "flow",       "streams",  "corpus", "library",   "bound",
    "measure",     "checkpoint", "cycle",    "conformance", "embed",      "serving",  "cli"};

inline std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

inline bool is_source(const fs::path& p) {
  static const std::set<std::string> kEndings = {".hpp", ".cpp", ".h", ".c", ".inc", ".def", ".cu", ".cuh"};
  return kEndings.count(p.extension().string()) != 0;
}

inline std::vector<fs::path> sources(const std::string& folder) {
  std::vector<fs::path> found;
  if (!fs::exists(kRoot / folder)) return found;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
    if (entry.is_regular_file() && is_source(entry.path())) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

inline std::vector<std::string> includes(const fs::path& path) {
  std::vector<std::string> found;
  std::stringstream text(read(path));
  for (std::string line; std::getline(text, line);) {
    std::stringstream words(line);
    char mark = 0, open = 0;
    std::string directive, name;
    if (!(words >> mark) || mark != '#') continue;
    words >> std::ws;
    while (std::isalpha(words.peek())) directive += static_cast<char>(words.get());
    if (directive != "include" || !(words >> open) || (open != '<' && open != '"')) continue;
    if (std::getline(words, name, open == '<' ? '>' : '"')) found.push_back(name);
  }
  return found;
}

inline bool starts(const std::string& s, const std::string& prefix) { return s.rfind(prefix, 0) == 0; }
inline bool ours(const std::string& include) {
  for (const char* folder : {"engine/", "formats/", "dsl/", "producers/", "consumers/", "kernels/", "plugins/",
                             "python/", "samples/", "sender/", "tests/", "tokens/", "wire/"})
    if (starts(include, folder)) return true;
  return false;
}

}  // namespace harmonics::engine::testing
