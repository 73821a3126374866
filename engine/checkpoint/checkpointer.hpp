// Checkpointer: writes checkpoints of a running cycle in the background and keeps the newest ones.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/checkpoint/best_checkpoints.hpp"
#include "engine/checkpoint/checkpoint_folder.hpp"

namespace harmonics::engine {

// Exactly one field is above zero.
struct CheckpointInterval {
  double seconds = 0;
  int64_t steps = 0, epochs = 0;
};

// Parses "90s", "5m", "1.5h", "500steps", "1epoch". Throws ErrorKind::Usage.
CheckpointInterval parse_interval(const std::string& text);

class Checkpointer {
 public:
  // Claims the directory as CheckpointFolder::claim(). Keeps the newest `keep` checkpoints, at least one.
  Checkpointer(std::string directory, CheckpointInterval every, size_t keep, FileCalls& calls = FileCalls::system());
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;
  ~Checkpointer();  // waits for a write in progress

  const CheckpointFolder& folder() const { return folder_; }
  // Returns the path of the newest finished checkpoint, which may be from an earlier run; empty if there is none.
  const std::string& last() const { return last_; }
  // Reads the checkpoint last(). Throws the errors of read_checkpoint().
  Checkpoint read_last() const { return read_checkpoint(last_, calls_); }
  // Returns why a run cannot resume from the last checkpoint of this run; empty if it can.
  const std::string& not_resumable() const { return state_.not_resumable; }
  // Sets a callback that gets the state of each checkpoint after it is on disk, on the thread that wrote it.
  void on_saved(std::function<void(const RunState&)> callback) { saved_ = std::move(callback); }
  // Also keeps the `most` checkpoints with the smallest validation losses.
  void keep_best(size_t most);
  // Returns these checkpoints, smallest loss first. Waits for a write in progress.
  std::vector<BestCheckpoint> best();
  // Returns whether a checkpoint with this validation loss would be one of them. Waits for a write in progress.
  bool is_best(double loss);
  // Adds the last checkpoint to the best ones if this validation loss of its weights is small enough.
  void rate_last(double loss);
  // Returns whether a checkpoint is being written.
  bool busy() const { return writing_.load(std::memory_order_acquire); }
  // Registers the checkpoint that the run resumes from.
  void continue_from(const Checkpoint& checkpoint);

  // Returns whether a checkpoint is due and none is being written. `epoch_ended`: an epoch ended with this step, and
  // `epoch` is the next one.
  bool due(double now, int64_t step, bool epoch_ended, uint64_t epoch);
  // Fills in the content of a checkpoint. The file is that of the previous checkpoint, so that its memory is reused.
  using Content = std::function<RunState(TensorFile&)>;
  // Takes the content now and writes it in the background. `loss` is the validation loss of its weights, if known.
  void start(const Content& content, std::optional<double> loss = {});
  // Takes the content and writes it before returning, unless the last checkpoint has the same step and position. Throws
  // if it cannot be written.
  void write(const Content& content);
  // Waits for a write in progress.
  void wait();
  // Returns and clears the errors of background writes as messages.
  std::vector<std::string> take_notes();

 private:
  void save();
  void rate(const std::string& path, double loss);
  bool taken(const Content& content);

  CheckpointFolder folder_;
  CheckpointInterval every_;
  size_t keep_;
  std::optional<BestCheckpoints> best_;  // null: only the newest are kept
  std::optional<double> loss_;           // of the checkpoint that is being written
  FileCalls& calls_;
  std::function<void(const RunState&)> saved_;
  TensorFile content_;
  RunState state_;  // of content_
  std::string last_, path_, failure_, unlisted_;
  std::string last_position_, position_;  // cycle, step and stream positions of last_ and of content_
  std::atomic<bool> writing_{false};
  std::thread thread_;
  double last_seconds_ = 0;
  int64_t last_step_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace harmonics::engine
