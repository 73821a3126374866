// CheckpointFolder: a directory of checkpoints, numbered in the order they were written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/file.hpp"
#include "engine/checkpoint/run_state.hpp"

namespace harmonics {

struct Checkpoint {
  std::string path;
  TensorFile file;  // weights, states and "moment/..."
  RunState state;
};

// Every byte is checked. Throws ErrorKind::Weights or NoInput.
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
  // Newest first; none when there is no such directory. Throws ErrorKind::NoInput when it cannot be read.
  std::vector<Entry> list() const;
  // The newest that is undamaged; `notes` says what was passed over and why. Empty: there is none. Throws when there
  // are some and all are damaged.
  std::optional<Checkpoint> newest(std::vector<std::string>& notes) const;

  // Makes the directory where needed, takes it for this process alone until the object ends, and clears away what
  // killed processes left unfinished. Throws ErrorKind::Output, or Usage when another process has it.
  void claim();
  // Writes the next one, atomically; its path. The folder must be claimed.
  std::string write(const TensorFile& sealed, int64_t step);
  // Removes all but the newest n. What cannot be removed stays.
  void keep(size_t n) const;

 private:
  std::string path_;
  FileCalls& calls_;
  int lock_ = -1;
};

}  // namespace harmonics
