// Folders for intermediate files.
#pragma once

#include <string>

namespace harmonics::engine {

// A new folder in the system's temporary folder, with a name that other users cannot predict and access for this user
// only. The destructor removes it with its files.
class ScratchFolder {
 public:
  // Throws ErrorKind::Output if it cannot be created.
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace harmonics::engine
