// CycleWatch: what a training cycle measures besides its losses: the requested metrics in every epoch, and validation
// at the end of each epoch.
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

  // Returns the evaluation of training batches; null if no metrics were requested.
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
  // Returns the names of the metrics `measured` by the programs and of those measured here.
  std::vector<std::string> names(const std::set<std::string>& measured) const;

  void count_batch(const StepProgram& program, int64_t samples) {
    if (!layer_metrics_) return;
    if (plan_.settings.accumulate > 1)
      layer_metrics_->hold(program.metric_addresses, samples);  // a checkpoint contains only complete steps
    else
      layer_metrics_->add(program.metric_addresses, samples);
  }
  void end_step() {
    if (!layer_metrics_) return;
    layer_metrics_->commit();
    if (decides_) read_windows();
  }
  // Computes the metrics over the last samples and stores them among the others. Called only when they are read,
  // because computing them at every step is too expensive.
  void read_windows(bool all = false);
  // Stores the accumulated metrics of the epoch in `state`; restore() loads them before the first compilation.
  void store(RunState& state);
  void restore(const RunState& state);
  // Returns notes about metrics that count only the rest of the epoch after a resume.
  std::vector<std::string> notes(const RunState& state) const;
  // Returns the requested metrics that cannot be computed over the last samples.
  std::vector<std::string> without_window() const {
    return layer_metrics_ ? layer_metrics_->without_window() : std::vector<std::string>();
  }
  // Validates with the current weights and changes no other state. Returns nothing if `stops` ended the validation.
  std::optional<Evaluation> validate(const std::function<bool()>& stops) { return validation_->run(stops); }
  // Adds the metrics of the epoch, and those of its validation if it was validated, to the report.
  void close_epoch(EpochReport& epoch, std::optional<Evaluation> validation);

 private:
  void name_windows();

  CyclePlan& plan_;
  CycleRecord& record_;
  std::optional<LayerMetrics> layer_metrics_;
  std::optional<Evaluator> validation_;
  std::vector<std::string> names_;
  std::map<std::string, std::map<std::string, std::vector<size_t>, std::less<>>>
      windows_;           // by layer and figure: indices of metrics
  bool decides_ = false;  // a condition reads the window metrics after every step
};

}  // namespace harmonics::engine
