// CycleWatch: what a training cycle measures besides its losses: the metrics a run asks for, over every epoch, and
// validation at the end of each.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/cycle/cycle_plan.hpp"
#include "engine/cycle/cycle_programs.hpp"
#include "engine/cycle/cycle_record.hpp"
#include "engine/measure/evaluate.hpp"

namespace harmonics {

class CycleWatch {
 public:
  CycleWatch(CyclePlan& plan, CycleRecord& record);

  // Of training batches; null: nobody asked for metrics.
  Judge* judge() { return judge_ ? &*judge_ : nullptr; }
  // Once the first programs are compiled: compiles validation, checks what was asked for.
  void prepare();
  // Validation compiled anew, from functions that have changed.
  void renew() {
    if (validation_) validation_->renew();
  }
  // `measured` by the programs, and what is measured here.
  std::vector<std::string> names(const std::set<std::string>& measured) const;

  void count_batch(const StepProgram& program, int64_t samples) {
    if (!judge_) return;
    if (plan_.settings.accumulate > 1)
      judge_->hold(program.judged, samples);  // a checkpoint is of a step's end
    else
      judge_->add(program.judged, samples);
  }
  void end_step() {
    if (!judge_) return;
    judge_->commit();
    if (decides_) read_windows();
  }
  // What the metrics say of the last samples, into the others, where somebody looks: working it out costs more than a
  // step should.
  void read_windows(bool all = false);
  // What the metrics of the epoch have gathered: into the state and, before the first programs are compiled, from it.
  void store(RunState& state);
  void restore(const RunState& state);
  // Metrics that count only the rest of the epoch, for people.
  std::vector<std::string> notes(const RunState& state) const;
  // Metrics that are not read over the last samples, though they were asked for.
  std::vector<std::string> without_window() const {
    return judge_ ? judge_->without_window() : std::vector<std::string>();
  }
  // Reads the metrics of the epoch and validates, unless the run was told to stop.
  void close_epoch(EpochReport& epoch, bool stopped);

 private:
  void name_windows();

  CyclePlan& plan_;
  CycleRecord& record_;
  std::optional<Judge> judge_;
  std::optional<Evaluator> validation_;
  std::vector<std::string> names_;
  std::map<std::string, std::map<std::string, std::vector<size_t>, std::less<>>>
      windows_;           // by layer and figure: what they are called
  bool decides_ = false;  // a condition looks at them after every step
};

}  // namespace harmonics
