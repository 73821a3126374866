// CycleRuntime: runs one cycle of a graph. Samples are read and joined ahead of the step, which is one compiled plan; a
// oneTBB flow graph (input -> limiter -> step -> sinks) carries batches between the stages, every edge bounded.
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

#include "engine/bound/harmonic_graph.hpp"
#include "engine/measure/cycle_report.hpp"

namespace harmonics {

class Checkpointer;
struct Checkpoint;
class CycleRun;
class LastGood;
class RunControl;
class Snapshots;

class CycleRuntime {
 public:
  CycleRuntime(HarmonicGraph& graph, int cycle, RunSettings settings);
  ~CycleRuntime();

  // Seconds that only grow; by default the machine's.
  void set_clock(std::function<double()> clock) { clock_ = std::move(clock); }
  // Writes checkpoints while it trains and when it ends; null: none. It must outlive run().
  void set_checkpoints(Checkpointer* checkpoints) { checkpoints_ = checkpoints; }
  // run() goes on from there, to the bit as if it had never stopped. Throws when the checkpoint says that it cannot.
  void resume(Checkpoint checkpoint);
  // Declares this cycle's parameters without running it: those of a cycle that was over before a checkpoint.
  void declare_parameters();
  // Where the weights came from, for messages: a file.
  void set_origin(std::string origin) { origin_ = std::move(origin); }
  // From any thread: a checkpoint of the last step that ended, on the disk when this returns. False: nothing runs, or
  // none are written. Throws what prevents it.
  bool checkpoint_now();

  // Trains when the cycle has a tap, else infers and feeds the consumers. Errors of any stage come out here; the
  // weights are then those after the last step that left all of them finite.
  CycleReport run();
  // Of the last run(), and of one that threw as far as it came.
  const CycleReport& report() const { return report_; }
  // From any thread or a signal handler: stops after the step that is running, all of its batches.
  void stop() { stop_.store(true, std::memory_order_relaxed); }
  // Did anybody ask, even too late for the last step?
  bool asked_to_stop() const { return stop_.load(std::memory_order_relaxed); }
  // From any thread or a signal handler: between two steps, libraries whose files have changed are opened again beside
  // the old ones, and what the graph uses of them changes over. One that fails is left as it was; on_note says what
  // happened.
  void reload_plugins() { reload_.store(true, std::memory_order_relaxed); }
  void on_progress(std::function<void(const Progress&)> callback) { progress_ = std::move(callback); }
  void on_epoch(std::function<void(const EpochReport&, const Progress&)> callback) { epoch_ = std::move(callback); }
  // Before the first step: what will be measured, and where the run goes on.
  void on_start(std::function<void(const std::vector<std::string>& metrics, const Beginning&)> callback) {
    start_ = std::move(callback);
  }
  void on_step(int64_t every, std::function<void(const StepReport&)> callback) {
    every_ = every, step_ = std::move(callback);
  }
  // Between two steps.
  void on_event(std::function<void(const RunEvent&)> callback) { event_ = std::move(callback); }
  // Keeps snapshots of the weights for those who read them meanwhile. `ready` is called by run() when everything is
  // compiled, before the first step, and again when plugins have changed.
  void keep_snapshots(std::function<void(const std::shared_ptr<Snapshots>&)> ready) { snapshots_ = std::move(ready); }
  // From any thread: the weights of the running cycle, for whoever reads them beside it. `between` runs first, while no
  // step does: what it compiles of the graph disturbs none. Null: it is not running, or over.
  std::shared_ptr<Snapshots> snapshots(const std::function<void()>& between);
  // Is this thread in a step of a cycle, which waits for it?
  static bool in_step_of_this_thread();
  // Says how it goes and does what is asked; null: nobody. It must outlive run().
  void set_control(RunControl* control) { control_ = control; }
  // What people should know at once, for example that a checkpoint could not be written.
  void on_note(std::function<void(const std::string&)> callback) { note_ = std::move(callback); }

 private:
  friend class CycleRun;
  CycleReport run_once();
  Error repaired(const Error& e, std::unique_ptr<CycleRun> run);
  std::optional<int64_t> repeat(int64_t until, std::string& why_not);
  void keep_copy();

  HarmonicGraph& graph_;
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
  std::unique_ptr<Checkpoint> resume_;     // until run() has taken it over
  std::vector<std::string> resume_notes_;  // how the streams differ from its
  CycleReport report_;
  std::string origin_ = "the graph";
  std::unique_ptr<LastGood> good_;  // while it trains
  // Repeats steps of a run that failed, up to this one: looks at every number after each.
  std::optional<int64_t> repeats_until_;
  std::mutex running_;  // guards run_
  CycleRun* run_ = nullptr;
};

}  // namespace harmonics
