// CycleWatch: what a training cycle measures besides its losses: the metrics a run asks for, over every epoch, and validation
// at the end of each.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/runtime/cycle_plan.hpp"
#include "engine/runtime/cycle_programs.hpp"
#include "engine/runtime/cycle_record.hpp"
#include "engine/runtime/evaluate.hpp"

namespace harmonics {

class CycleWatch {
 public:
  CycleWatch(CyclePlan& plan, CycleRecord& record);

  // Of training batches; null: nobody asked for metrics.
  Judge* judge() { return judge_ ? &*judge_ : nullptr; }
  // Once the first programs are compiled: compiles validation, checks what was asked for.
  void prepare();
  // `measured` by the programs, and what is measured here.
  std::vector<std::string> names(const std::set<std::string>& measured) const;

  void count_batch(const StepProgram& program) {
    if (judge_) judge_->add(program.judged);
  }
  // Reads the metrics of the epoch and validates, unless the run was told to stop.
  void close_epoch(EpochReport& epoch, bool stopped);

 private:
  CyclePlan& plan_;
  CycleRecord& record_;
  std::optional<Judge> judge_;
  std::optional<Evaluator> validation_;
  std::vector<std::string> names_;
};

}  // namespace harmonics
