// Files of a folder in memory.
#pragma once

#include <string>
#include <vector>

#include "tests/files_in_memory.hpp"

namespace harmonics::engine::testing {

inline std::vector<std::string> files_of(const FilesInMemory& files, const std::string& folder) {
  std::vector<std::string> found;
  for (const std::string& name : files.names())
    if (name.rfind(folder, 0) == 0) found.push_back(name);
  return found;
}

}  // namespace harmonics::engine::testing
