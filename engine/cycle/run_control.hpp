// RunControl: the interface between a running cycle and other threads. Any thread may read the status and make
// requests, which take effect between two steps. Memory use does not grow with the length of the run.
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
#include "engine/flow/layer_change.hpp"

namespace harmonics::engine {

// A producer of the running cycle.
struct StreamProbe {
  std::string name;
  bool live = false;
  uint64_t per_joint = 1, joint_bytes = 0;  // samples and bytes in a joint sample
  std::function<void(StreamStatus&)> look;  // fills in figures of the source; callable from any thread
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
  int64_t window = 0;                   // samples in the test-then-train window; 0 for none
  RunFigures from;                      // where the cycle starts or resumes
  std::optional<double> learning_rate;  // set from outside earlier
  std::vector<std::string> metrics;     // names of the values passed to leave()
  std::vector<StreamProbe> streams;
  std::function<void()> stop;
  std::function<bool()> checkpoint;  // returns when the checkpoint is on disk; throws if writing fails
};

// The first samples of the last batch of a step, at most kMost.
struct BatchSample {
  static constexpr uint64_t kMost = 32;
  int cycle = 0;
  int64_t step = 0;
  uint64_t count = 0;
  std::vector<std::vector<std::byte>> streams;  // by producer of the cycle; samples are contiguous
};

class RunControl {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kLogLines = 256, kEpochRows = 32;

  explicit RunControl(std::string graph, int cycles = 1);

  // ---- callable from any thread ----
  RunStatus status() const;
  RunHistory history() const;
  // Return the kept lines and epoch rows whose number is above `after`. Numbers start at 1.
  std::vector<LogLine> log(uint64_t after) const;
  std::vector<RunRow> epochs(uint64_t after) const;

  // Returns samples that a recent step trained on, or null before the first step. Requests new samples and waits for
  // them until `deadline`.
  std::shared_ptr<const BatchSample> sample(Clock::time_point deadline);

  // Return when the request is done, or after a time limit. Throw ErrorKind::Usage if the request is not possible now.
  void pause();
  void resume();
  void step(int64_t count);
  void set_learning_rate(std::optional<double> rate);  // no value: use the schedule
  void checkpoint();
  void stop();
  // Change arguments of functions on the arrows into a layer, and take back the last change. Throw as LayerChanger.
  LayerChange change_layer(const std::string& layer, const std::vector<ArgumentText>& arguments);
  LayerChange undo_layer();
  // Sets the object that changes layers on request; null for none. It must outlive the requests.
  void set_changer(LayerChanger* changer);

  // ---- called by the running cycle ----
  // Announces the producers of the next cycle before any of their samples is read.
  void expect(const std::vector<std::string>& producers, bool checkpointing = false);
  void begin(RunScene scene);
  // Ends the use of the scene: its functions are not called afterwards. `over`: no other cycle follows.
  void end(bool over);
  // Called before a step. Returns false if the run is paused and must not run a step.
  bool enter();
  // Waits while the run is paused, at most kPauseInterval, because a stop from a signal handler cannot wake it.
  void wait_while_held();
  // Called after a step. Does not allocate.
  void leave(const RunFigures& figures, const std::vector<double>& values);
  // Returns whether the run will be paused when the current step ends.
  bool holds() const;
  // Whether samples of a batch were requested.
  bool wants_sample() const { return sample_wanted_.load(std::memory_order_relaxed); }
  void give_sample(std::shared_ptr<const BatchSample> sample);
  // Returns the rate set from outside; NaN if none.
  double learning_rate() const { return rate_.load(std::memory_order_relaxed); }
  void end_epoch(RunRow row);
  void note(const char* level, std::string text);
  // Record the newest checkpoint, and the reason why a checkpoint could not be written.
  void checkpointed(const std::string& path);
  void not_checkpointed(const std::string& why);
  // Sets the phase directly, for example "serving" without a run, or "stopping".
  void set_phase(RunPhase phase);

 private:
  RunPhase phase() const;
  void expect_running(const char* what) const;
  LayerChanger& changer() const;
  double seconds() const { return std::chrono::duration<double>(Clock::now() - born_).count(); }

  const std::string graph_;
  const int cycles_;
  const Clock::time_point born_ = Clock::now();
  std::atomic<double> rate_;
  std::atomic<bool> sample_wanted_{true};

  std::mutex acting_;  // held during calls of the scene's `stop` and `checkpoint`; locked before mutex_
  mutable std::mutex mutex_;
  mutable std::condition_variable wake_, changed_;  // wakes the run; wakes threads waiting for it
  RunPhase phase_ = RunPhase::starting;
  bool paused_ = false, busy_ = false;
  int64_t steps_left_ = 0;
  RunScene scene_;
  LayerChanger* changer_ = nullptr;
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
