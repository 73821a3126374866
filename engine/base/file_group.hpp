// Files that belong together, replaced together.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "engine/base/file.hpp"

namespace harmonics::engine {

// Readers open one of the files, the leading one, before the others: config.json of a model's folder. All are written
// beside their places first, so that an error until then leaves every file as it was. finish() takes the former leading
// file away, removes what is no longer needed, replaces the others, and puts the leading file in its place. Whenever
// that ends, readers find the former files, the new ones, or no leading file.
class FileGroup {
 public:
  explicit FileGroup(const std::string& leading, FileCalls& calls = FileCalls::system());
  // The leading file; valid as long as the group, as those of add().
  FileReplacement& leading() { return files_.front(); }
  FileReplacement& add(const std::string& path);
  // A file that finish() removes, if it is there.
  void remove(const std::string& path) { removed_.push_back(path); }
  // Throws as write_file_atomically(), with a note if the files are incomplete then.
  void finish();

 private:
  std::string path_;
  FileCalls& calls_;
  std::deque<FileReplacement> files_;
  std::vector<std::string> removed_;
};

}  // namespace harmonics::engine
