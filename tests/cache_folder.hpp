// A separate cache folder for the lifetime of a test.
#pragma once

#include <catch2/catch.hpp>

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

namespace harmonics::engine::testing {

class CacheFolder {
 public:
  CacheFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "harmonics-cache-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path_ = name;
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    setenv("XDG_CACHE_HOME", name.c_str(), 1);
  }
  ~CacheFolder() {
    if (before_.empty())
      unsetenv("XDG_CACHE_HOME");
    else
      setenv("XDG_CACHE_HOME", before_.c_str(), 1);
    std::filesystem::remove_all(path_);
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_))
      if (entry.is_regular_file()) all.push_back(entry.path());
    return all;
  }

 private:
  std::filesystem::path path_;
  std::string before_;
};

}  // namespace harmonics::engine::testing
