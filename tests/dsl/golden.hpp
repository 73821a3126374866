// Golden files. UPDATE_GOLDEN=1 rewrites them; otherwise a missing one is a failure.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace golden {

inline std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void check(const std::filesystem::path& path, const std::string& actual) {
  INFO("golden " << path.string());
  if (const char* update = std::getenv("UPDATE_GOLDEN"); update && std::string(update) == "1") {
    std::ofstream(path, std::ios::binary) << actual;
    return;
  }
  if (!std::filesystem::exists(path)) FAIL("there is no " << path.string() << "; run with UPDATE_GOLDEN=1 to write it");
  CHECK(actual == read(path));
}

// Returns a folder's files with this extension, sorted.
inline std::vector<std::filesystem::path> files(const std::filesystem::path& folder, const std::string& extension) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == extension) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Checks that files of both extensions come in pairs.
inline void check_no_orphans(const std::filesystem::path& folder, const std::string& golden, const std::string& of) {
  for (const auto& path : files(folder, golden)) {
    INFO(path.string());
    CHECK(std::filesystem::exists(std::filesystem::path(path).replace_extension(of)));
  }
}

}  // namespace golden
