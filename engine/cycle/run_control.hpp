// RunControl: the interface between a running cycle and other threads. Any thread may read the status and make
// requests; requests take effect between two steps. Its memory does not grow with the run.
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

namespace harmonics::engine {

// A producer of the running cycle.
struct StreamProbe {
  std::string name;
  bool live = false;
  uint64_t per_joint = 1, joint_bytes = 0;  // samples and bytes in a joint sample
  std::function<void(StreamStatus&)> look;  // fills in what only the source knows; callable from any thread
};

// Figures at the end of a step.
struct RunFigures {
  int64_t epoch = 0, step = 0, samples = 0, windowed = 0;  // epoch from 0; samples in the window
  double seconds = 0, fraction = -1, learning_rate = 0;
};

// A cycle at its start.
struct RunScene {
  int cycle = 0;
  bool trains = false, checkpointing = false;
  int64_t epochs = 0;                   // 0: unlimited
  int64_t window = 0;                   // samples of the test-then-train window; 0: none
  RunFigures from;                      // where it starts or resumes
  std::optional<double> learning_rate;  // set from outside earlier
  std::vector<std::string> metrics;     // names of the values passed to leave()
  std::vector<StreamProbe> streams;
  std::function<void()> stop;
  std::function<bool()> checkpoint;  // returns when it is on disk; throws if that fails
};

// The first samples of the last batch of a step.
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

  // ---- any thread ----
  RunStatus status() const;
  RunHistory history() const;
  // Returns those of the last lines and epoch rows whose number is above `after`; numbers begin with 1.
  std::vector<LogLine> log(uint64_t after) const;
  std::vector<RunRow> epochs(uint64_t after) const;

  // Returns samples that a recent step trained on, or null before the first step. Requests new ones and waits for
  // them until `deadline`.
  std::shared_ptr<const BatchSample> sample(Clock::time_point deadline);

  // These throw ErrorKind::Usage if the request is not possible now. They return when it is done, or after a time
  // limit.
  void pause();
  void resume();
  void step(int64_t count);
  void set_learning_rate(std::optional<double> rate);  // none: use the schedule
  void checkpoint();
  void stop();

  // ---- the running cycle ----
  // Announces the producers of the coming cycle; no sample of them has been read yet.
  void expect(const std::vector<std::string>& producers, bool checkpointing = false);
  void begin(RunScene scene);
  // After this call nothing of the scene is called. `over`: no other cycle follows.
  void end(bool over);
  // Called before a step. Returns false if the run is paused and no step may run now.
  bool enter();
  // Waits while the run is paused, at most kPauseInterval, because a signal that stops the run cannot wake it.
  void wait_while_held();
  // Called after a step. Does not allocate.
  void leave(const RunFigures& figures, const std::vector<double>& values);
  // Returns whether the run will be paused when the current step ends.
  bool holds() const;
  // Samples of a batch, on request.
  bool wants_sample() const { return sample_wanted_.load(std::memory_order_relaxed); }
  void give_sample(std::shared_ptr<const BatchSample> sample);
  // NaN: none was set.
  double learning_rate() const { return rate_.load(std::memory_order_relaxed); }
  void end_epoch(RunRow row);
  void note(const char* level, std::string text);
  // Set the newest checkpoint, and the reason why the last one could not be written.
  void checkpointed(const std::string& path);
  void not_checkpointed(const std::string& why);
  // Sets the phase directly, for example "serving" without a run, or "stopping".
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

  std::mutex acting_;  // held while stop or checkpoint of the scene run; locked before mutex_
  mutable std::mutex mutex_;
  mutable std::condition_variable wake_, changed_;  // wakes the run; wakes threads that wait for it
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

}  // namespace harmonics::engine
