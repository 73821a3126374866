// CycleRuntime: runs one cycle of a graph. Each step is one compiled plan; samples are read and joined ahead of it. A
// oneTBB flow graph (input -> limiter -> step -> sinks) carries batches between the stages; every edge is bounded.
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

  // Sets a monotonic clock in seconds. The default is the system clock.
  void set_clock(std::function<double()> clock) { hooks_.clock = std::move(clock); }
  // Makes run() write checkpoints during and after training; null for none. `checkpoints` must outlive run().
  void set_checkpoints(Checkpointer* checkpoints) { hooks_.checkpoints = checkpoints; }
  // Makes run() continue from the checkpoint, bitwise as if it had not been interrupted. Throws if the checkpoint
  // cannot be resumed.
  void resume(Checkpoint checkpoint);
  // Declares the parameters of this cycle without running it, for a cycle that was complete before the checkpoint.
  void declare_parameters();
  // Sets the origin of the weights, for example a file, for messages.
  void set_origin(std::string origin) { hooks_.origin = std::move(origin); }
  // Writes a checkpoint of the last complete step and returns when it is on disk. Waits for a running step, but not for
  // a validation. Returns false if nothing runs or the run writes no checkpoints. Throws if writing fails. Callable
  // from any thread.
  bool checkpoint_now();
  // Calls `take` with the newest copy of the weights after a complete step. The copy is of the last step if a stop
  // request ended the run or while it validates; otherwise it may be seconds old. The memory is valid during the call.
  // Waits only for a copy in progress. Returns false if no step of this cycle has been copied. Callable from any
  // thread.
  bool with_copy(const std::function<void(const TensorFile&)>& take);

  // Trains if the cycle has a tap; otherwise infers and feeds the consumers. Throws errors of all stages. The weights
  // are then those after the last step that left all of them finite.
  CycleReport run();
  // Returns the report of the last run(), even if it threw.
  const CycleReport& report() const { return report_; }
  // Stops after the current step, including all of its batches. Callable from any thread or a signal handler.
  void stop() { hooks_.stop.store(true, std::memory_order_relaxed); }
  // Returns whether a stop was requested, even after the last step.
  bool asked_to_stop() const { return hooks_.stop.load(std::memory_order_relaxed); }
  // Reloads libraries whose files have changed, between two steps. Each is loaded beside the old one, and the functions
  // that the graph uses are replaced. If this fails, the old library stays in use. on_note reports the outcome.
  // Callable from any thread or a signal handler.
  void reload_plugins() { hooks_.reload.store(true, std::memory_order_relaxed); }
  // Changes arguments of functions between two steps. `graph` is the same flow with the new arguments; `what` describes
  // them. Waits for the running step. Returns false if no step follows. Throws errors of shapes and compilation, also
  // if the graph needs other weights, and then changes nothing. Callable from any thread, and from callbacks between
  // two steps.
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
  // Called between two steps, every `every` steps. Its time is excluded from rates. The callback may read the weights.
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
  // Returns the weights of the running cycle for concurrent readers, or null if it is not running. Calls `between`
  // first, while no step runs, so that it can compile parts of the graph. Callable from any thread.
  std::shared_ptr<Snapshots> snapshots(const std::function<void()>& between);
  // Returns whether this thread runs a step of a cycle, which would wait for itself.
  static bool in_step_of_this_thread();
  // Makes run() report status to `control` and execute its requests; null for none. `control` must outlive run().
  void set_control(RunControl* control) { hooks_.control = control; }
  // Receives messages for the user, for example about a checkpoint that could not be written.
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
