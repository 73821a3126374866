// CycleWatch: what a training cycle measures besides its losses: the requested metrics over every epoch, and
// validation at the end of each.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/cycle/cycle_plan.hpp"
#include "engine/cycle/cycle_programs.hpp"
#include "engine/cycle/cycle_record.hpp"
#include "engine/measure/evaluate.hpp"

namespace harmonics::engine {

class CycleWatch {
 public:
  CycleWatch(CyclePlan& plan, CycleRecord& record);

  // Evaluates training batches; null: no metrics were requested.
  LayerMetrics* layer_metrics() { return layer_metrics_ ? &*layer_metrics_ : nullptr; }
  // Called after the first programs are compiled. Compiles validation and checks the requested metrics.
  void prepare();
  // Returns whether epochs are validated.
  bool validates() const { return validation_.has_value(); }
  // Returns whether each validation takes the next samples of a live stream, and may wait for them.
  bool validates_live() const { return validation_ && validation_->live(); }
  // Recompiles validation with the current functions.
  void renew() {
    if (validation_) validation_->renew();
  }
  // Returns the metrics `measured` by the programs and those measured here.
  std::vector<std::string> names(const std::set<std::string>& measured) const;

  void count_batch(const StepProgram& program, int64_t samples) {
    if (!layer_metrics_) return;
    if (plan_.settings.accumulate > 1)
      layer_metrics_->hold(program.metric_addresses, samples);  // a checkpoint shows the end of a step
    else
      layer_metrics_->add(program.metric_addresses, samples);
  }
  void end_step() {
    if (!layer_metrics_) return;
    layer_metrics_->commit();
    if (decides_) read_windows();
  }
  // Computes the metrics over the last samples and puts them among the others. Called only when they are read,
  // because computing them costs too much for every step.
  void read_windows(bool all = false);
  // Stores what the metrics of the epoch have accumulated in the state; restore() loads it before the first
  // compilation.
  void store(RunState& state);
  void restore(const RunState& state);
  // Notes about metrics that count only the remainder of the epoch.
  std::vector<std::string> notes(const RunState& state) const;
  // Requested metrics that cannot be computed over the last samples.
  std::vector<std::string> without_window() const {
    return layer_metrics_ ? layer_metrics_->without_window() : std::vector<std::string>();
  }
  // Validates on the current weights and changes no other state. Returns nothing if `stops` ended it.
  std::optional<Evaluation> validate(const std::function<bool()>& stops) { return validation_->run(stops); }
  // Reads the metrics of the epoch and those of its validation, if it was validated.
  void close_epoch(EpochReport& epoch, std::optional<Evaluation> validation);

 private:
  void name_windows();

  CyclePlan& plan_;
  CycleRecord& record_;
  std::optional<LayerMetrics> layer_metrics_;
  std::optional<Evaluator> validation_;
  std::vector<std::string> names_;
  std::map<std::string, std::map<std::string, std::vector<size_t>, std::less<>>>
      windows_;           // by layer and figure: indices of their metrics
  bool decides_ = false;  // a condition reads them after every step
};

}  // namespace harmonics::engine
