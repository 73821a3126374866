// CycleRun: the loop of one run of a cycle: three stages (CycleStages) and, in them, steps and epochs. Everything else
// that happens at the boundaries of steps and epochs is done by observers (CycleObserver).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cycle/cycle_conditions.hpp"
#include "engine/cycle/cycle_context.hpp"
#include "engine/cycle/cycle_control.hpp"
#include "engine/cycle/cycle_feed.hpp"
#include "engine/cycle/cycle_guard.hpp"
#include "engine/cycle/cycle_live.hpp"
#include "engine/cycle/cycle_reload.hpp"
#include "engine/cycle/cycle_results.hpp"

namespace harmonics::engine {

class CycleRun {
 public:
  // Everything passed by reference must outlive this.
  CycleRun(BoundGraph& graph, int cycle, const RunSettings& settings, CycleHooks& hooks, CycleReport& report);
  void run();

  // ---- callable from any thread; see CycleRuntime ----
  bool checkpoint_now() { return checkpoints_.write_now(); }
  std::shared_ptr<Snapshots> snapshots(const std::function<void()>& between) { return readers_.snapshots(between); }
  bool configure(const Graph& graph, const std::string& what);
  // Marks that no step follows, for whatever reason. Wakes all threads that wait for the end of a step.
  void end_steps() { boundary_.end(); }

  // ---- after a failure ----
  int64_t step() const { return record_.step(); }
  // Returns why the steps since the last copy cannot be repeated bit for bit, or an empty string if they can.
  std::string why_not_repeated() const { return weights_.why_not_repeated(); }

 private:
  // ---- before the first step ----
  void open_streams();
  void begin_anew();
  void compile();
  void attach_observers();
  void name_weights();
  void name_step();

  // ---- stages ----
  void run_stages();
  Slot* next_slot();
  void take_turn(Slot& slot);
  void fill_between(Slot& slot);

  // ---- the step stage ----
  void step(Slot& slot);
  bool run_batch(Slot& slot);
  enum class Ran { whole, skipped, undone };
  Ran run_program(CompiledStep& program, const Slot& slot);
  void skip(const Slot& slot);
  void end_step();
  void update(CompiledStep& update);
  void report_step();
  bool close_epoch(uint64_t next, double now, bool cut);
  void close_part();
  std::optional<Evaluation> validate();
  void tell_unvalidated();
  Progress progress(double now, double later = 0);

  // ---- the end ----
  void finish();
  void report_end(double end, bool interrupted);
  void report_streams();
  void abandon(const Error& error);

  // Calls `event` on all observers.
  template <class... Parameters, class... Arguments>
  void tell(void (CycleObserver::*event)(Parameters...), Arguments&&... arguments) {
    for (CycleObserver* observer : observers_) (observer->*event)(arguments...);
  }

  CyclePlan plan_;
  CycleReport& report_;
  CycleHooks& hooks_;
  CycleRecord record_;
  CycleWatch watch_;
  CyclePrograms programs_;
  StepBoundary boundary_;
  CycleContext cycle_;
  CycleRate rate_;
  CycleConditions conditions_;
  CycleReaders readers_;
  LiveStreams streams_;

  CycleState state_;
  FiniteWeights weights_;
  CycleGuard guard_;
  CycleReload reload_;
  CycleCheckpoints checkpoints_;
  CycleControl control_;
  CycleLive live_;
  std::vector<CycleObserver*> observers_;  // those with work in this run, in the order of CycleObserver

  std::optional<CycleFeed> feed_;
  CycleResults results_;
  uint64_t end_ = 0;             // joint samples of this epoch used by batches
  std::vector<uint64_t> reads_;  // by producer: samples that batches do not need again
  const float* norm_ = nullptr;  // gradient norm of the last step, if it clips
  double step_over_ = 0;         // end of the last step, by feed_clock()
  double next_progress_ = 0;
  bool told_unvalidated_ = false;
  std::optional<double> unvalidated_at_;  // start of the validation that a stop request ended
};

}  // namespace harmonics::engine
