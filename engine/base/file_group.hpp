// Files that belong together, replaced together.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "engine/base/file.hpp"

namespace harmonics::engine {

// Readers open the leading file first, such as config.json of a model's folder. All files are first written under
// temporary names; an error up to then leaves the former files unchanged. finish() removes the former leading file and
// files that are no longer needed, renames the others, and renames the leading file last. If the process stops at any
// point, readers find all former files, all new files, or no leading file.
class FileGroup {
 public:
  explicit FileGroup(const std::string& leading, FileCalls& calls = FileCalls::system());
  // The leading file. References to files are valid as long as the group.
  FileReplacement& leading() { return files_.front(); }
  FileReplacement& add(const std::string& path);
  // A file that finish() removes if it exists.
  void remove(const std::string& path) { removed_.push_back(path); }
  // Throws the errors of write_file_atomically(); a note says if the files are incomplete.
  void finish();

 private:
  std::string path_;
  FileCalls& calls_;
  std::deque<FileReplacement> files_;
  std::vector<std::string> removed_;
};

}  // namespace harmonics::engine
