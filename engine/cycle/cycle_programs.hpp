// CyclePrograms: the compiled steps of a cycle, one for each size of batch and set of branches.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/cycle/cycle_plan.hpp"
#include "engine/flow/compiled_step.hpp"
#include "engine/flow/judge.hpp"
#include "engine/flow/metrics.hpp"
#include "engine/flow/predicate.hpp"

namespace harmonics {

// A compiled step with everything it reports resolved, so that a step looks nothing up by name.
struct StepProgram {
  std::unique_ptr<CompiledStep> step;
  std::vector<size_t> parts;                           // of the metric "loss", by Lowered::parts
  std::vector<size_t> loss_metrics, accuracy_metrics;  // by Lowered::losses
  std::vector<std::vector<size_t>> layer_parts;        // of the loss metrics
  std::vector<const HTensor*> results;                 // by wanted node; null: this branch does not drive it
  JudgedOutputs judged;                                // with a judge
};

class CyclePrograms {
 public:
  // `judge`: of what metrics ask for besides; null: nothing.
  CyclePrograms(CyclePlan& plan, Metrics& metrics, Judge* judge)
      : plan_(plan),
        metrics_(metrics),
        judge_(judge),
        predicates_(plan.graph.graph().conditionals),
        result_types_(plan.wanted.size()) {}

  // Before the clock starts, for the branches that hold at `counts`. With conditions inside the cycle every branch is
  // traced, so that its mistakes show now.
  void compile_first(const RunCounts& counts);
  // Compiles anew, from functions that have changed; to be called again with others when that throws.
  void renew(const RunCounts& counts);
  // Declares the parameters of every branch.
  void trace();
  // The branches whose conditions hold now.
  void choose_branches(const RunCounts& counts);
  StepProgram& of_batch(int64_t count);
  // Steps from what the batches of a group have gathered; null: each batch is a step.
  CompiledStep* update() const { return chosen_->update.get(); }
  // The parts of the loss whose gradients are gathered one by one, as StepProgram::parts has them.
  const std::vector<size_t>& gathered_parts() const { return chosen_->gathered_parts; }
  LoweringOptions options(int64_t batch) const;

  const std::vector<std::optional<TensorType>>& result_types() const {
    return result_types_;
  }  // by wanted node, of one sample
  const std::set<std::string>& measured() const { return measured_; }
  // Parameters of what was traced so far, and those of them that its steps change.
  const std::set<std::string>& used() const { return used_; }
  const std::set<std::string>& trained() const { return trained_; }
  // Who computes each functional in what was compiled so far: "cpu, portable".
  std::map<std::string, std::string> implementations() const;
  // What the host computes beside a device with memory of its own, in one line; "": nothing.
  std::string hosted() const;

 private:
  struct Branch {
    std::map<int64_t, StepProgram> by_batch;
    std::unique_ptr<CompiledStep> update;
    std::vector<size_t> gathered_parts;
  };

  std::vector<int> conditionals() const;
  bool gathers() const { return plan_.training && plan_.settings.accumulate > 1; }
  void trace_branches(const std::vector<int>& conditionals);
  void learn(const Lowered& lowered);
  StepProgram compile(int64_t batch);

  CyclePlan& plan_;
  Metrics& metrics_;
  Judge* judge_;
  Predicates predicates_;
  std::map<std::set<int>, Branch> by_branches_;
  Branch* chosen_ = nullptr;
  std::set<int> branches_;  // active
  std::vector<char> held_;  // by conditional
  std::vector<std::optional<TensorType>> result_types_;
  std::set<std::string> measured_, used_, trained_;
  std::map<std::string, std::set<std::string>> chosen_by_;
};

}  // namespace harmonics
