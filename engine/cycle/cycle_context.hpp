// CycleContext: state shared by the loop of a running cycle and its observers.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/cycle/cycle_hooks.hpp"
#include "engine/cycle/cycle_plan.hpp"
#include "engine/cycle/cycle_programs.hpp"
#include "engine/cycle/cycle_record.hpp"
#include "engine/cycle/cycle_watch.hpp"
#include "engine/cycle/step_boundary.hpp"

namespace harmonics::engine {

// The read position after the last complete step.
struct CyclePosition {
  uint64_t epoch = 0, index = 0;  // joint samples read in this epoch
  std::vector<uint64_t> reads;    // by producer: samples that a resumed run does not need again
};

class CycleContext {
 public:
  CycleContext(CyclePlan& plan_of_run, CycleReport& report_of_run, CycleHooks& hooks_of_run, CycleRecord& record_of_run,
               CycleWatch& watch_of_run, CyclePrograms& programs_of_run, StepBoundary& boundary_of_run);

  CyclePlan& plan;
  CycleReport& report;
  CycleHooks& hooks;
  CycleRecord& record;
  CycleWatch& watch;
  CyclePrograms& programs;
  StepBoundary& boundary;
  CyclePosition at;                  // written by the loop only, with the boundary held
  std::atomic<bool> filling{false};  // a batch is being read between two steps

  // Returns whether checkpoints of this run are written.
  bool keeps() const { return hooks.checkpoints && plan.training; }
  // Returns the state to resume from until it has been restored; null if the run starts from the beginning.
  const RunState* resumed() const { return hooks.resume ? &hooks.resume->state : nullptr; }

  // ---- seconds of the run, including those before the checkpoint that it resumes from ----
  double now() const { return before_ + hooks.clock() - start_; }
  void set_before(double seconds) { before_ = seconds; }
  void start_clock() { start_ = hooks.clock(); }

  // ---- the end; callable from any thread ----
  // Ends the run after the current batch or step. Returns false if it has ended already.
  bool finish_because(std::string reason);
  // Ends the run if a stop was requested. Returns whether it ended it.
  bool heed_stop() { return stop_requested() && finish_because("interrupt"); }
  bool stop_requested() const { return hooks.stop.load(std::memory_order_relaxed); }
  bool finished() const { return finished_.load(); }
  bool interrupted() const { return interrupted_.load(std::memory_order_relaxed); }
  // Returns whether no further step runs.
  bool stopping() const { return finished() || plan.epochs == 0 || plan.settings.steps.value_or(1) <= 0; }

  // ---- messages; these require the boundary while steps run ----
  void note(const std::string& text);
  void event(const char* kind, std::string text);

 private:
  std::atomic<bool> finished_{false}, interrupted_{false};
  double start_ = 0, before_ = 0;
};

}  // namespace harmonics::engine
