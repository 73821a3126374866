// CheckpointFolder: a directory of checkpoints, numbered in the order of writing.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/base/file.hpp"
#include "engine/checkpoint/run_state.hpp"

namespace harmonics::engine {

struct Checkpoint {
  std::string path;
  TensorFile file;  // weights, states and "moment/..."
  RunState state;
};

// Reads a checkpoint and verifies every byte. Throws ErrorKind::Weights, NoInput or InputOutput.
Checkpoint read_checkpoint(const std::string& path, FileCalls& calls = FileCalls::system());

class CheckpointFolder {
 public:
  struct Entry {
    std::string path;
    uint64_t number;
    int64_t step;
  };

  explicit CheckpointFolder(std::string path, FileCalls& calls = FileCalls::system());
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;
  ~CheckpointFolder();

  const std::string& path() const { return path_; }
  // Returns the entries, newest first; none if the directory does not exist. Throws ErrorKind::NoInput if it cannot
  // be read.
  std::vector<Entry> list() const;
  // Returns the newest readable checkpoint, or none if there are no checkpoints. `notes` receives the reason for each
  // skipped one. Throws if none can be read.
  std::optional<Checkpoint> newest(std::vector<std::string>& notes) const;

  // Creates the directory if needed, locks it for this process until the object is destroyed, and removes unfinished
  // files of killed processes. Throws ErrorKind::Output, or Usage if another process holds the lock.
  void claim();
  // Writes the next checkpoint atomically and returns its path. The folder must be claimed.
  std::string write(const TensorFile& sealed, int64_t step);
  // Removes all checkpoints except the newest n and those with these file names. Ignores failures to remove.
  void keep(size_t n, const std::set<std::string>& names = {}) const;

 private:
  std::string path_;
  FileCalls& calls_;
  int lock_ = -1;
};

}  // namespace harmonics::engine
