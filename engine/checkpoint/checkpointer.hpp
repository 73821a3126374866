// Checkpointer: writes checkpoints of a running cycle, in the background, and keeps the newest few.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/checkpoint/checkpoint_folder.hpp"

namespace harmonics {

// One of them is above zero.
struct CheckpointInterval {
  double seconds = 0;
  int64_t steps = 0, epochs = 0;
};

// "90s", "5m", "1.5h", "500steps", "1epoch"; throws ErrorKind::Usage.
CheckpointInterval parse_interval(const std::string& text);

class Checkpointer {
 public:
  // Claims the directory.
  Checkpointer(std::string directory, CheckpointInterval every, size_t keep, FileCalls& calls = FileCalls::system());
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;
  ~Checkpointer();  // waits for what is being written

  const CheckpointFolder& folder() const { return folder_; }
  // The newest there is, of this run or before it; empty: none.
  const std::string& last() const { return last_; }
  // Why a run could not go on from the newest; empty: it can.
  const std::string& not_resumable() const { return state_.not_resumable; }
  // Called with what a checkpoint holds as soon as it is safe on the disk, on the thread that wrote it.
  void on_saved(std::function<void(const RunState&)> callback) { saved_ = std::move(callback); }
  // Is one being written?
  bool busy() const { return writing_.load(std::memory_order_acquire); }
  // The run goes on from this one.
  void continue_from(const Checkpoint& checkpoint);

  // Is it time for one, and nothing being written? `epoch_ended`: an epoch ended with this step, of which `epoch`
  // follows.
  bool due(double now, int64_t step, bool epoch_ended, uint64_t epoch);
  // What one holds; its memory is used again for the next.
  using Content = std::function<RunState(TensorFile&)>;
  // Takes the content now and writes it while the caller goes on.
  void start(const Content& content);
  // Takes the content and waits until it is safe on the disk, unless the last one is of the same step and position.
  // Throws what prevents it.
  void write(const Content& content);
  // Waits for what is being written.
  void wait();
  // What went wrong since the last call, for people; the run goes on.
  std::vector<std::string> take_notes();

 private:
  void save();
  bool taken(const Content& content);

  CheckpointFolder folder_;
  CheckpointInterval every_;
  size_t keep_;
  std::function<void(const RunState&)> saved_;
  TensorFile content_;
  RunState state_;  // of content_
  std::string last_, path_, failure_;
  std::string last_position_, position_;  // cycle, step and place of last_ and of content_
  std::atomic<bool> writing_{false};
  std::thread thread_;
  double last_seconds_ = 0;
  int64_t last_step_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace harmonics
