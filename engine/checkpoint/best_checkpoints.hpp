// BestCheckpoints: the checkpoints of a folder with the smallest validation losses, listed in its file best.json.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/file.hpp"

namespace harmonics::engine {

struct BestCheckpoint {
  std::string file;  // its name in the folder
  int64_t step = 0;
  double loss = 0;
  friend bool operator==(const BestCheckpoint&, const BestCheckpoint&) = default;
};

// Parse and format {"version": 1, "best": [{"file": "checkpoint-...", "step": 200, "loss": 1.5}]}. parse_best() returns
// none for other text.
std::optional<std::vector<BestCheckpoint>> parse_best(std::string_view text);
std::string best_text(const std::vector<BestCheckpoint>& best);

class BestCheckpoints {
 public:
  // Keeps `most` checkpoints, at least one. Reads the folder's list; a missing or malformed one counts as empty.
  BestCheckpoints(std::string folder, size_t most, FileCalls& calls = FileCalls::system());

  // Returns whether a checkpoint with this loss would enter the list.
  bool wants(double loss) const;
  // Adds a checkpoint, drops the worst beyond `most`, and writes the list. Among equal losses the earlier one ranks
  // first. Throws ErrorKind::Output after changing the list in memory.
  void add(BestCheckpoint checkpoint);
  // Returns the list, smallest loss first.
  const std::vector<BestCheckpoint>& list() const { return list_; }
  std::set<std::string> files() const;

 private:
  std::string folder_;
  size_t most_;
  FileCalls& calls_;
  std::vector<BestCheckpoint> list_;
};

}  // namespace harmonics::engine
