// Replaces several files that belong together.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "engine/base/file.hpp"

namespace harmonics::engine {

// Readers open the leading file first, such as config.json of a model's folder. All files are first written under
// temporary names; an error before finish() leaves the old files unchanged. finish() removes the old leading file and
// the files passed to remove(), renames the others, and renames the leading file last. If the process stops at any
// point, readers find all old files, all new files, or no leading file.
class FileGroup {
 public:
  explicit FileGroup(const std::string& leading, FileCalls& calls = FileCalls::system());
  // Returns the leading file. References to files are valid during the group's lifetime.
  FileReplacement& leading() { return files_.front(); }
  FileReplacement& add(const std::string& path);
  // Makes finish() remove this file if it exists.
  void remove(const std::string& path) { removed_.push_back(path); }
  // Throws the errors of write_file_atomically(). A note on the error says if the group is left incomplete.
  void finish();

 private:
  std::string path_;
  FileCalls& calls_;
  std::deque<FileReplacement> files_;
  std::vector<std::string> removed_;
};

}  // namespace harmonics::engine
