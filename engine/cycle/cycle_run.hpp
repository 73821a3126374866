// CycleRun: one run of a cycle. Three stages, input, step and output, as a oneTBB flow graph.
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

namespace harmonics {

class CycleRun {
 public:
  CycleRun(CycleRuntime& owner, CycleReport& report);
  ~CycleRun();
  void run();
  // From any thread; see CycleRuntime.
  bool checkpoint_now();
  std::shared_ptr<Snapshots> snapshots(const std::function<void()>& between);
  static bool in_step_of_this_thread();
  // No step follows, whatever ended the run: who waits for the end of one goes away.
  void end_steps();

  // ---- of a run that failed ----
  int64_t step() const { return record_.step(); }
  // Why steps since the last copy cannot be repeated to the bit; empty: they can.
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

  // ---- those outside ----
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
  bool finish_because(std::string reason);  // false: it has finished already
  [[noreturn]] void diverged(const CompiledStep& program, const Slot& slot);

  // ---- weights that stay finite ----
  std::string spoilt() const;
  void expect_finite() const;
  void keep_good();
  bool undo_if_spoilt();
  bool undo_step();
  void put_back_states();
  void abandon(const Error& e);

  void deliver(const Slot& slot);
  void finish();

  // ---- plugins that have changed ----
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
  void event(const char* kind, std::string text);  // with the boundary held

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
  std::optional<double> rate_set_;    // from outside, before the checkpoint this goes on from
  bool controlled_ = false;           // the control has it now
  std::optional<double> told_rate_;   // as the last event says
  std::string told_checkpoint_;       // likewise
  std::atomic<bool> finished_{false}, interrupted_{false};
  double told_lost_at_ = 0;
  double step_over_ = 0;           // when the last step ended, by feed_clock()
  int told_refusals_ = 0;          // notes
  double start_ = 0, before_ = 0;  // by the clock; what ran before the checkpoint it went on from
  double next_progress_ = 0, next_look_ = 0;

  std::atomic<bool> filling_{false};  // a batch is being read between the steps

  std::atomic<int> asking_{0};       // threads that want the boundary between two steps
  std::mutex turn_;                  // whoever waits for stepping_ holds it, so that the next step does not come before
  std::condition_variable stepped_;  // a step has ended, or all have
  bool in_batch_ = false;
  std::mutex stepping_;             // held while a batch runs and while a checkpoint is taken
  bool over_ = false;               // nothing is left to be taken
  uint64_t epoch_ = 0, index_ = 0;  // joint samples of this epoch that steps have used
  uint64_t end_ = 0;                // and batches
  std::vector<uint64_t> reads_;     // by producer: of its samples, those that batches do not need again
  int64_t looked_at_ = -1;          // the step of which a checkpoint was taken while no other ended
  std::string not_resumable_;
  std::shared_ptr<Snapshots> snapshots_;                  // null: nobody reads them
  std::vector<double> values_;                            // of the metrics, for the control
  std::map<std::string, std::vector<std::byte>> states_;  // as the step began, where a step is several batches
  std::optional<double> kept_rate_;                       // that was set from outside when the last copy was made
};

}  // namespace harmonics
