// CycleRun: one run of a cycle as a oneTBB flow graph with three stages: input, step and output.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/checkpoint/run_state.hpp"
#include "engine/cycle/cycle_feed.hpp"
#include "engine/cycle/cycle_plan.hpp"
#include "engine/cycle/cycle_programs.hpp"
#include "engine/cycle/cycle_record.hpp"
#include "engine/cycle/cycle_runtime.hpp"
#include "engine/cycle/cycle_watch.hpp"
#include "engine/cycle/finite_results.hpp"
#include "engine/cycle/live_streams.hpp"
#include "engine/cycle/run_control.hpp"
#include "engine/cycle/snapshot.hpp"

namespace harmonics::engine {

class CycleRun {
 public:
  CycleRun(CycleRuntime& owner, CycleReport& report);
  ~CycleRun();
  void run();
  // From any thread; see CycleRuntime.
  bool checkpoint_now();
  std::shared_ptr<Snapshots> snapshots(const std::function<void()>& between);
  static bool in_step_of_this_thread();
  // Marks that no step follows, for whatever reason, and wakes all threads that wait for the end of a step.
  void end_steps();

  // ---- after a failure ----
  int64_t step() const { return record_.step(); }
  // Returns why the steps since the last copy cannot be repeated bit for bit, or an empty string if they can.
  std::string why_not_repeated() const;

 private:
  double now() const { return before_ + owner_.clock_() - start_; }
  const RunState* resumed() const;
  void expect_belonging() const;
  void go_on();
  std::string keep_rate(bool same_training);
  bool keeps() const { return owner_.checkpoints_ && plan_.training; }
  bool stopping() const;
  void check_conditions_measured() const;
  std::string metric_to_ask_for(std::string figure) const;
  void forget_moments();

  // ---- readers and control ----
  void keep_snapshots();
  void begin_control();
  void wait_while_paused(std::unique_lock<std::mutex>& stepping);
  RunFigures figures() const;
  static RunRow row_of(const EpochReport& epoch, const Progress& progress);
  void tell_control();
  void give_sample(const Slot& slot);
  void tell_checkpoints();

  void name_weights();
  void run_step(Slot& slot);
  void fill_between(Slot& slot);
  void step(Slot& slot);
  bool run_batch(Slot& slot);
  void end_step();
  void close_epoch(uint64_t next, double now, bool cut);
  float next_rate();
  std::optional<double> rate_set() const;
  void check_conditions();
  void tell_step();
  void check_metrics();
  bool finish_because(std::string reason);  // false: already finished
  [[noreturn]] void diverged(const CompiledStep& program, const Slot& slot);

  // ---- keeping weights finite ----
  std::string spoilt() const;
  void expect_finite() const;
  void keep_good();
  bool undo_if_spoilt();
  bool undo_step();
  void put_back_states();
  void abandon(const Error& e);

  void deliver(const Slot& slot);
  void finish();

  // ---- changed plugins ----
  void reload_plugins();
  void reload(const std::string& path);

  // ---- live streams ----
  void begin_live();
  void end_live();
  void leave_live();
  void watch_live(const std::stop_token& over);
  void look_after_checkpoints();
  void tell_lost();
  void tell_refused(const std::map<std::string, LiveStreams::Gone>& gone);

  // ---- checkpoints ----
  void tell_resumable();
  RunState state();
  RunState fill(TensorFile& file);
  void remember_states();
  void checkpoint_if_due(bool epoch_ended);
  void last_checkpoint();
  void note(const std::string& text);
  void event(const char* kind, std::string text);  // requires the boundary lock

  CycleRuntime& owner_;
  CycleReport& report_;
  CyclePlan plan_;
  LiveStreams live_;
  std::optional<CycleFeed> feed_;
  CycleRecord record_;
  CycleWatch watch_;
  CyclePrograms programs_;
  FiniteResults finite_;
  std::optional<LearningRate> rate_;  // training
  std::optional<double> rate_set_;    // set from outside, before the checkpoint it resumes from
  bool controlled_ = false;           // the control now holds it
  std::optional<double> told_rate_;   // as in the last event
  std::string told_checkpoint_;       // as in the last event
  std::atomic<bool> finished_{false}, interrupted_{false};
  double told_lost_at_ = 0;
  double step_over_ = 0;           // end of the last step, by feed_clock()
  int told_refusals_ = 0;          // number of notes about refused samples
  double start_ = 0, before_ = 0;  // clock value at the start; seconds before the checkpoint it resumes from
  double next_progress_ = 0, next_look_ = 0;

  std::atomic<bool> filling_{false};  // a batch is being read between two steps

  std::atomic<int> asking_{0};       // threads waiting for the boundary between two steps
  std::mutex turn_;                  // held while waiting for stepping_, so that the next step does not start first
  std::condition_variable stepped_;  // a step has ended, or the run has
  bool in_batch_ = false;
  std::mutex stepping_;             // held while a batch runs and while a checkpoint is taken
  bool over_ = false;               // nothing is left to checkpoint
  uint64_t epoch_ = 0, index_ = 0;  // joint samples of this epoch used by complete steps
  uint64_t end_ = 0;                // joint samples used by batches
  std::vector<uint64_t> reads_;     // by producer: samples that batches do not need again
  int64_t looked_at_ = -1;          // the step already checkpointed while no other step ended
  std::string not_resumable_;
  std::shared_ptr<Snapshots> snapshots_;                  // null: no readers
  std::vector<double> values_;                            // of the metrics, for the control
  std::map<std::string, std::vector<std::byte>> states_;  // as of the start of the step, if a step has several batches
  std::optional<double> kept_rate_;                       // rate set from outside when the last copy was made
};

}  // namespace harmonics::engine
