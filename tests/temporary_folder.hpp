// An empty folder for the lifetime of a test.
#pragma once

#include <catch2/catch.hpp>

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace harmonics::engine::testing {

class EmptyFolder {
 public:
  EmptyFolder() : path_((std::filesystem::temp_directory_path() / "harmonics-test-XXXXXX").string()) {
    REQUIRE(mkdtemp(path_.data()));
  }
  EmptyFolder(const EmptyFolder&) = delete;
  EmptyFolder& operator=(const EmptyFolder&) = delete;
  ~EmptyFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace harmonics::engine::testing
