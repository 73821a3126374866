// Files of real data that tests read if they are available.
#pragma once

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace harmonics::engine::testing {

inline std::string data_path(const std::string& name) {
  const char* folder = std::getenv("HARMONICS_TEST_DATA");
  return (folder ? std::string(folder) : std::string(HARMONICS_SOURCE_DIR) + "/../shared/data") + "/" + name;
}
// Returns false, with a printed warning, if the test data is missing.
inline bool have_data(const std::string& name) {
  if (std::filesystem::exists(data_path(name))) return true;
  WARN("SKIPPED: no test data " << data_path(name) << "; set HARMONICS_TEST_DATA");
  return false;
}

}  // namespace harmonics::engine::testing
