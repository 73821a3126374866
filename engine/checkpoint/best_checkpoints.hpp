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

// {"version": 1, "best": [{"file": "checkpoint-...", "step": 200, "loss": 1.5}]}. Null for any other text.
std::optional<std::vector<BestCheckpoint>> parse_best(std::string_view text);
std::string best_text(const std::vector<BestCheckpoint>& best);

class BestCheckpoints {
 public:
  // Keeps `most`, at least one. Reads the list of the folder; one that is damaged counts as empty.
  BestCheckpoints(std::string folder, size_t most, FileCalls& calls = FileCalls::system());

  // Whether a checkpoint with this loss would be in the list.
  bool wants(double loss) const;
  // Adds it, drops the worst beyond `most`, and writes the list. Of equal losses the first stays before. Throws
  // ErrorKind::Output; the list in memory has changed then.
  void add(BestCheckpoint checkpoint);
  // Smallest loss first.
  const std::vector<BestCheckpoint>& list() const { return list_; }
  std::set<std::string> files() const;

 private:
  std::string folder_;
  size_t most_;
  FileCalls& calls_;
  std::vector<BestCheckpoint> list_;
};

}  // namespace harmonics::engine
