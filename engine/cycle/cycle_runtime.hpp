// CycleRuntime: runs one cycle of a graph. Samples are read and joined ahead of the step, which is one compiled plan.
// A oneTBB flow graph (input -> limiter -> step -> sinks) carries batches between the stages, every edge bounded.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/bound/bound_graph.hpp"
#include "engine/measure/cycle_report.hpp"

namespace harmonics::engine {

class Checkpointer;
struct Checkpoint;
class CycleRun;
class LastGood;
class RunControl;
class Snapshots;

class CycleRuntime {
 public:
  CycleRuntime(BoundGraph& graph, int cycle, RunSettings settings);
  ~CycleRuntime();

  // Sets a monotonic clock in seconds; the default is the machine's.
  void set_clock(std::function<double()> clock) { clock_ = std::move(clock); }
  // Writes checkpoints during and at the end of training; null: none. `checkpoints` must outlive run().
  void set_checkpoints(Checkpointer* checkpoints) { checkpoints_ = checkpoints; }
  // Makes run() continue from the checkpoint, bitwise as if it had never stopped. Throws if the checkpoint cannot be
  // resumed.
  void resume(Checkpoint checkpoint);
  // Declares this cycle's parameters without running it, for a cycle that ended before a checkpoint.
  void declare_parameters();
  // Sets the file that the weights came from, for messages.
  void set_origin(std::string origin) { origin_ = std::move(origin); }
  // Writes a checkpoint of the last complete step and returns when it is on disk. Callable from any thread. Returns
  // false if nothing runs or no checkpoints are written. Throws if writing fails.
  bool checkpoint_now();

  // Trains if the cycle has a tap, else infers and feeds the consumers. Throws the errors of all stages; the weights
  // are then those after the last step that left all of them finite.
  CycleReport run();
  // The report of the last run(), also of one that threw.
  const CycleReport& report() const { return report_; }
  // Stops after the current step, including all of its batches. Callable from any thread or a signal handler.
  void stop() { stop_.store(true, std::memory_order_relaxed); }
  // Returns whether a stop was requested, even after the last step.
  bool asked_to_stop() const { return stop_.load(std::memory_order_relaxed); }
  // Reloads, between two steps, libraries whose files have changed: each is loaded beside the old one, and the
  // functions that the graph uses are replaced. If this fails, the old library stays in use; on_note reports the
  // outcome. Callable from any thread or a signal handler.
  void reload_plugins() { reload_.store(true, std::memory_order_relaxed); }
  void on_progress(std::function<void(const Progress&)> callback) { progress_ = std::move(callback); }
  void on_epoch(std::function<void(const EpochReport&, const Progress&)> callback) { epoch_ = std::move(callback); }
  // Called before the first step with the names of the metrics and the point where the run continues.
  void on_start(std::function<void(const std::vector<std::string>& metrics, const Beginning&)> callback) {
    start_ = std::move(callback);
  }
  void on_step(int64_t every, std::function<void(const StepReport&)> callback) {
    every_ = every, step_ = std::move(callback);
  }
  // Called between two steps.
  void on_event(std::function<void(const RunEvent&)> callback) { event_ = std::move(callback); }
  // Keeps snapshots of the weights for readers during the run. run() calls `ready` after compilation, before the
  // first step, and again after plugins were reloaded.
  void keep_snapshots(std::function<void(const std::shared_ptr<Snapshots>&)> ready) { snapshots_ = std::move(ready); }
  // Returns the weights of the running cycle for readers beside it, or null if it is not running. `between` runs
  // first, while no step runs, so that it can compile parts of the graph. Callable from any thread.
  std::shared_ptr<Snapshots> snapshots(const std::function<void()>& between);
  // Returns whether this thread is inside a step of a cycle, which waits for it.
  static bool in_step_of_this_thread();
  // Reports status to `control` and executes its requests; null: none. `control` must outlive run().
  void set_control(RunControl* control) { control_ = control; }
  // Receives messages for the user, for example that a checkpoint could not be written.
  void on_note(std::function<void(const std::string&)> callback) { note_ = std::move(callback); }

 private:
  friend class CycleRun;
  CycleReport run_once();
  Error repaired(const Error& e, std::unique_ptr<CycleRun> run);
  std::optional<int64_t> repeat(int64_t until, std::string& why_not);
  void keep_copy();

  BoundGraph& graph_;
  int cycle_;
  RunSettings settings_;
  std::atomic<bool> stop_{false}, reload_{false};
  std::function<void(const Progress&)> progress_;
  std::function<void(const EpochReport&, const Progress&)> epoch_;
  std::function<void(const std::vector<std::string>&, const Beginning&)> start_;
  std::function<void(const StepReport&)> step_;
  std::function<void(const RunEvent&)> event_;
  int64_t every_ = 0;  // steps between two reports; 0: none
  std::function<double()> clock_;
  std::function<void(const std::string&)> note_;
  std::function<void(const std::shared_ptr<Snapshots>&)> snapshots_;
  Checkpointer* checkpoints_ = nullptr;
  RunControl* control_ = nullptr;
  std::unique_ptr<Checkpoint> resume_;     // until run() has taken it
  std::vector<std::string> resume_notes_;  // differences between its streams and the current ones
  CycleReport report_;
  std::string origin_ = "the graph";
  std::unique_ptr<LastGood> good_;  // while training
  // Repeats the steps of a failed run up to this one and checks every number after each.
  std::optional<int64_t> repeats_until_;
  std::mutex running_;  // guards run_
  CycleRun* run_ = nullptr;
};

}  // namespace harmonics::engine
