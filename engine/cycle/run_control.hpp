// RunControl: what stands between a running cycle and everybody outside of it. Any thread may look and ask; what is
// asked takes effect between two steps. Fixed memory, however long the run.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/run_history.hpp"
#include "engine/cycle/run_status.hpp"

namespace harmonics {

// A producer of the cycle that runs.
struct StreamProbe {
  std::string name;
  bool live = false;
  uint64_t per_joint = 1, joint_bytes = 0;  // samples, and bytes, in a joint sample
  std::function<void(StreamStatus&)> look;  // fills what only the source knows; from any thread
};

// As of the end of a step.
struct RunFigures {
  int64_t epoch = 0, step = 0, samples = 0, windowed = 0;  // epoch from 0; samples in the window
  double seconds = 0, fraction = -1, learning_rate = 0;
};

// A cycle as it begins.
struct RunScene {
  int cycle = 0;
  bool trains = false, checkpointing = false;
  int64_t epochs = 0;                   // 0: open
  int64_t window = 0;                   // samples of test-then-train; 0: none
  RunFigures from;                      // where it goes on
  std::optional<double> learning_rate;  // that was set from outside before
  std::vector<std::string> metrics;     // what RunFigures::values holds
  std::vector<StreamProbe> streams;
  std::function<void()> stop;
  std::function<bool()> checkpoint;  // one that is on the disk when it returns; throws what prevents it
};

// What went into a step: the first samples of its last batch.
struct BatchSample {
  static constexpr uint64_t kMost = 32;
  int cycle = 0;
  int64_t step = 0;
  uint64_t count = 0;
  std::vector<std::vector<std::byte>> streams;  // by producer of the cycle, samples back to back
};

class RunControl {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kLogLines = 256, kEpochRows = 32;

  explicit RunControl(std::string graph, int cycles = 1);

  // ---- everybody ----
  RunStatus status() const;
  RunHistory history() const;
  // Of the last lines and ends of epochs those numbered above `after`, which begin with 1.
  std::vector<LogLine> log(uint64_t after) const;
  std::vector<RunRow> epochs(uint64_t after) const;

  // Samples that a step learned from lately, and others for next time; null before the first. Waits for them until
  // `deadline`.
  std::shared_ptr<const BatchSample> sample(Clock::time_point deadline);

  // These throw ErrorKind::Usage when it cannot be done now. They return when it is done, or when that takes very long.
  void pause();
  void resume();
  void step(int64_t count);
  void set_learning_rate(std::optional<double> rate);  // none: what the schedule says
  void checkpoint();
  void stop();

  // ---- the run ----
  // It will have these producers; nothing has come from them yet.
  void expect(const std::vector<std::string>& producers, bool checkpointing = false);
  void begin(RunScene scene);
  // Nothing of the scene is called any more. `over`: no other cycle follows.
  void end(bool over);
  // Before a step. False: it is paused, and there is to be none now.
  bool enter();
  // While it is paused, but no longer than a moment: a signal that stops the run wakes nobody.
  void wait_while_held();
  // After a step. Allocates nothing.
  void leave(const RunFigures& figures, const std::vector<double>& values);
  // Is it paused when the step that runs is over?
  bool holds() const;
  // Samples of a batch, when somebody asked.
  bool wants_sample() const { return sample_wanted_.load(std::memory_order_relaxed); }
  void give_sample(std::shared_ptr<const BatchSample> sample);
  // NaN: nobody has set one.
  double learning_rate() const { return rate_.load(std::memory_order_relaxed); }
  void end_epoch(RunRow row);
  void note(const char* level, std::string text);
  // The newest checkpoint; why the last could not be written.
  void checkpointed(const std::string& path);
  void not_checkpointed(const std::string& why);
  // Another word for the phase: "serving" without a run, "stopping".
  void set_phase(RunPhase phase);

 private:
  RunPhase phase() const;
  void expect_running(const char* what) const;
  double seconds() const { return std::chrono::duration<double>(Clock::now() - born_).count(); }

  const std::string graph_;
  const int cycles_;
  const Clock::time_point born_ = Clock::now();
  std::atomic<double> rate_;
  std::atomic<bool> sample_wanted_{true};

  std::mutex acting_;  // held while stop or checkpoint of the scene are called; taken before mutex_
  mutable std::mutex mutex_;
  mutable std::condition_variable wake_, changed_;  // the run; those who wait for it
  RunPhase phase_ = RunPhase::starting;
  bool paused_ = false, busy_ = false;
  int64_t steps_left_ = 0;
  RunScene scene_;
  bool running_ = false;
  RunFigures figures_;
  std::vector<double> values_;
  RunHistory history_;
  Speed samples_, steps_;
  std::deque<LogLine> log_;
  std::deque<RunRow> epochs_;
  uint64_t lines_ = 0, rows_ = 0;
  std::shared_ptr<const BatchSample> sample_;
  std::string checkpoint_, trouble_;
  Clock::time_point checkpointed_;
};

}  // namespace harmonics
