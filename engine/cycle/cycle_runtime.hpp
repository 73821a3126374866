// CycleRuntime: runs one cycle of a graph. Samples are read and joined ahead of the step, which is one compiled plan.
// A oneTBB flow graph (input -> limiter -> step -> sinks) carries batches between the stages, every edge bounded.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/bound/bound_graph.hpp"
#include "engine/cycle/cycle_hooks.hpp"
#include "engine/measure/cycle_report.hpp"

namespace harmonics::engine {

class CycleRun;

class CycleRuntime {
 public:
  CycleRuntime(BoundGraph& graph, int cycle, RunSettings settings);
  ~CycleRuntime();

  // Sets a monotonic clock in seconds; the default is the machine's.
  void set_clock(std::function<double()> clock) { hooks_.clock = std::move(clock); }
  // Writes checkpoints during and at the end of training; null: none. `checkpoints` must outlive run().
  void set_checkpoints(Checkpointer* checkpoints) { hooks_.checkpoints = checkpoints; }
  // Makes run() continue from the checkpoint, bitwise as if it had never stopped. Throws if the checkpoint cannot be
  // resumed.
  void resume(Checkpoint checkpoint);
  // Declares this cycle's parameters without running it, for a cycle that ended before a checkpoint.
  void declare_parameters();
  // Sets the file that the weights came from, for messages.
  void set_origin(std::string origin) { hooks_.origin = std::move(origin); }
  // Writes a checkpoint of the last complete step and returns when it is on disk. Waits for a running step, but not for
  // a validation. Callable from any thread. Returns false if nothing runs or no checkpoints are written. Throws if
  // writing fails.
  bool checkpoint_now();
  // Calls `take` with the newest copy of the weights of a whole step: of the last step once a stop request ended the
  // run and while it validates, else up to seconds old. The memory is valid during the call. Waits for nothing but a
  // copy in progress. Callable from any thread. Returns false if no step of this cycle is in a copy.
  bool with_copy(const std::function<void(const TensorFile&)>& take);

  // Trains if the cycle has a tap, else infers and feeds the consumers. Throws the errors of all stages; the weights
  // are then those after the last step that left all of them finite.
  CycleReport run();
  // The report of the last run(), also of one that threw.
  const CycleReport& report() const { return report_; }
  // Stops after the current step, including all of its batches. Callable from any thread or a signal handler.
  void stop() { hooks_.stop.store(true, std::memory_order_relaxed); }
  // Returns whether a stop was requested, even after the last step.
  bool asked_to_stop() const { return hooks_.stop.load(std::memory_order_relaxed); }
  // Reloads, between two steps, libraries whose files have changed: each is loaded beside the old one, and the
  // functions that the graph uses are replaced. If this fails, the old library stays in use; on_note reports the
  // outcome. Callable from any thread or a signal handler.
  void reload_plugins() { hooks_.reload.store(true, std::memory_order_relaxed); }
  // Changes arguments of functions between two steps. `graph`: the same flow with the new arguments; `what` describes
  // them. Waits for the running step. Returns false if no step follows. Throws the errors of compilation and changes
  // nothing then. Callable from any thread, and from callbacks between two steps.
  bool configure(const Graph& graph, const std::string& what);
  void on_progress(std::function<void(const Progress&)> callback) { hooks_.progress = std::move(callback); }
  void on_epoch(std::function<void(const EpochReport&, const Progress&)> callback) {
    hooks_.epoch = std::move(callback);
  }
  // Called before the first step with the names of the metrics and the point where the run continues.
  void on_start(std::function<void(const std::vector<std::string>& metrics, const Beginning&)> callback) {
    hooks_.start = std::move(callback);
  }
  void on_step(int64_t every, std::function<void(const StepReport&)> callback) {
    hooks_.every = every, hooks_.step = std::move(callback);
  }
  // Called between two steps, after every so many; its time does not count in rates. The weights may be read.
  void on_pause(int64_t every, std::function<void(const StepReport&)> callback) {
    hooks_.pause_every = every, hooks_.pause = std::move(callback);
  }
  // Called between two steps.
  void on_event(std::function<void(const RunEvent&)> callback) { hooks_.event = std::move(callback); }
  // Keeps snapshots of the weights for readers during the run. run() calls `ready` after compilation, before the
  // first step, and again after plugins were reloaded.
  void keep_snapshots(std::function<void(const std::shared_ptr<Snapshots>&)> ready) {
    hooks_.snapshots = std::move(ready);
  }
  // Returns the weights of the running cycle for readers beside it, or null if it is not running. `between` runs
  // first, while no step runs, so that it can compile parts of the graph. Callable from any thread.
  std::shared_ptr<Snapshots> snapshots(const std::function<void()>& between);
  // Returns whether this thread is inside a step of a cycle, which waits for it.
  static bool in_step_of_this_thread();
  // Reports status to `control` and executes its requests; null: none. `control` must outlive run().
  void set_control(RunControl* control) { hooks_.control = control; }
  // Receives messages for the user, for example that a checkpoint could not be written.
  void on_note(std::function<void(const std::string&)> callback) { hooks_.note = std::move(callback); }

 private:
  void take_routes(const RunState& state);
  Error repaired(const Error& e, std::unique_ptr<CycleRun> run);
  std::optional<int64_t> repeat(int64_t until, std::string& why_not);
  void keep_copy();
  void forget_copy();
  bool checkpoint_copy();

  BoundGraph& graph_;
  int cycle_;
  RunSettings settings_;
  CycleHooks hooks_;
  CycleReport report_;
  std::mutex running_;  // guards run_
  CycleRun* run_ = nullptr;
};

}  // namespace harmonics::engine
