// CycleRecord: the counts and metrics of a running cycle by batch, step and epoch, and its report.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "engine/checkpoint/run_state.hpp"
#include "engine/cycle/cycle_plan.hpp"
#include "engine/cycle/cycle_programs.hpp"
#include "engine/flow/metrics.hpp"
#include "engine/measure/curve.hpp"
#include "engine/measure/epoch_history.hpp"

namespace harmonics::engine {

class CycleRecord {
 public:
  CycleRecord(const CyclePlan& plan, CycleReport& report);

  Metrics& metrics() { return metrics_; }
  int64_t step() const { return step_; }
  int64_t batches() const { return batches_; }
  uint64_t epoch() const { return epoch_; }
  RunCounts counts() const { return {step_, static_cast<int64_t>(epoch_), samples_}; }
  double now() const { return now_; }  // seconds at the last step

  // Batches of the current step.
  int64_t gathered() const { return group_.batches; }
  double gathered_weight(size_t part) const {
    return group_.loss[part].weight;
  }  // total weight of the samples counted by this part of the loss
  int64_t next_batch() { return ++batches_; }
  void count_batch(const StepProgram& program, int64_t samples);
  void end_step(double now);
  // The last batch was skipped; the next one gets its number.
  void drop_batch() { --batches_; }
  // Undoes the current step.
  void drop_step();
  // Adds the epoch to the report if it had a step, then starts epoch `next`. The pointer is valid until the next
  // epoch is closed.
  EpochReport* close_epoch(uint64_t next, double now);
  // Returns whether the epoch has a step, so that close_epoch() reports it.
  bool has_epoch() const { return in_epoch_.steps > 0; }
  int64_t epoch_steps() const { return in_epoch_.steps; }
  // Number of closed epochs, including those that the report no longer lists.
  int64_t closed_epochs() const { return history_.closed(); }
  void put_gradient_norm(double norm) {
    if (!norm_metric_) norm_metric_ = metrics_.declare(kGradientNorm);
    metrics_.put(*norm_metric_, norm);
  }
  // Adds seconds that a step waited for its batch.
  void wait(double seconds) { waited_ += seconds, epoch_waited_ += seconds; }
  // Excludes seconds not spent on training from the rates.
  void set_aside(double seconds) { aside_ += seconds, epoch_start_ += seconds; }
  double aside() const { return aside_; }
  // Drops the tables of earlier validations: they may be large, and only the last one is shown.
  void forget_tables();

  // Writes the fields of `state` that belong to this object: the state after the last complete step, without the
  // batches since.
  void store(RunState& state) const;
  void restore(const RunState& state);

  // `later`: seconds set aside that lie after `now`.
  Progress progress(double now, double later = 0) const;
  StepReport step_report(int64_t steps) const;  // with means over the last `steps` steps, at most a hundred
  void finish(double now, double later = 0);

 private:
  // Sums over the batches of one step, or over the steps of one epoch.
  struct Sums {
    int64_t batches = 0, steps = 0, samples = 0;
    std::vector<StepSums> loss;  // by part, as in Metrics::part; its samples are in `measured`
    double measured = 0, correct = 0, judged = 0;
    std::map<std::string, StepSums> figures;  // reported by losses
    bool counts() const;
    double mean_loss() const;
    double accuracy() const { return judged > 0 ? correct / judged : -1; }
    void add(const Sums& group);  // adds losses and accuracy of a step
    void clear();                 // keeps the allocated memory
  };

  void declare_parts(size_t metric, int layer);
  void measure(const StepProgram& program, double samples);
  void add(size_t metric, const std::vector<size_t>& parts, const std::vector<BatchMean>& means, double samples);
  double add_accuracy(size_t metric, const BatchMean& correct, double samples);
  double samples_per_second(double now) const {
    return now > aside_ ? static_cast<double>(samples_) / (now - aside_) : 0;
  }

  const CyclePlan& plan_;
  CycleReport& report_;
  Metrics metrics_;
  size_t loss_metric_;
  std::optional<size_t> accuracy_metric_, norm_metric_;
  Curve curve_;
  EpochHistory history_;
  Sums group_, in_epoch_;
  int64_t step_ = 0, batches_ = 0, samples_ = 0;
  int64_t whole_batches_ = 0;  // batches up to the last complete step
  uint64_t epoch_ = 0;
  double now_ = 0, epoch_start_ = 0, aside_ = 0;
  double before_ = 0, waited_ = 0, epoch_waited_ = 0;  // of earlier processes; of this process, by run and by epoch
};

}  // namespace harmonics::engine
