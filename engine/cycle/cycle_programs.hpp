// CyclePrograms: the compiled steps of a cycle, one for each batch size and set of branches.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/cycle/cycle_plan.hpp"
#include "engine/flow/compiled_step.hpp"
#include "engine/flow/layer_metrics.hpp"
#include "engine/flow/metrics.hpp"
#include "engine/flow/predicate.hpp"

namespace harmonics::engine {

// Where the figure of a loss is shown.
struct FigureMetrics {
  size_t loss, figure;        // number in Lowered::losses, and in its figures
  std::vector<size_t> shown;  // metrics: "LAYER.margin", and "margin" of the first layer that has it
  std::vector<std::string> names;
};

// A compiled step with all its metrics resolved, so that a step looks up nothing by name.
struct StepProgram {
  std::unique_ptr<CompiledStep> step;
  std::vector<size_t> parts;                           // of the metric "loss", by Lowered::parts
  std::vector<size_t> loss_metrics, accuracy_metrics;  // by Lowered::losses
  std::vector<std::vector<size_t>> layer_parts;        // of the loss metrics
  std::vector<FigureMetrics> figures;                  // that the losses report
  std::vector<const HTensor*> results;                 // by wanted node; null: not computed in this branch
  MetricAddresses metric_addresses;                    // only with metrics
  const float* gradient_norm = nullptr;                // where the step clips by it; null: it does not
};

class CyclePrograms {
 public:
  // `layer_metrics` evaluates the requested metrics; null: none.
  CyclePrograms(CyclePlan& plan, Metrics& metrics, LayerMetrics* layer_metrics)
      : plan_(plan),
        metrics_(metrics),
        layer_metrics_(layer_metrics),
        predicates_(plan.graph.graph().conditionals),
        shows_norm_(shows_norm(plan)),
        result_types_(plan.wanted.size()) {}

  // Compiles, before the clock starts, the branches that hold at `counts`. If the cycle has conditions, every branch
  // is traced, so that errors in any of them appear now.
  void compile_first(const RunCounts& counts);
  // Recompiles with the current functions. If it throws, the caller restores the old functions and calls it again.
  void renew(const RunCounts& counts);
  // Declares the parameters of every branch.
  void trace();
  // Selects the branches whose conditions hold now.
  void choose_branches(const RunCounts& counts);
  StepProgram& of_batch(int64_t count);
  // The step that applies the gradients accumulated over a group of batches; null: each batch is a step.
  CompiledStep* update() const { return chosen_->update.get(); }
  const float* norm_of_update() const { return chosen_->norm; }  // as StepProgram::gradient_norm
  // FLOP of matrix products per sample in the steps of whole batches, those that are computed again included; 0: none.
  double products_of_sample();
  // The parts of the loss whose gradients are accumulated separately, indexed as StepProgram::parts.
  const std::vector<size_t>& gathered_parts() const { return chosen_->gathered_parts; }
  LoweringOptions options(int64_t batch) const;

  const std::vector<std::optional<TensorType>>& result_types() const {
    return result_types_;
  }  // by wanted node, of one sample
  const std::set<std::string>& measured() const { return measured_; }
  // Parameters used by everything traced so far, and those of them that its steps change.
  const std::set<std::string>& used() const { return used_; }
  const std::set<std::string>& trained() const { return trained_; }
  // Whether a program traced so far changes the tensor: every program that has run is among them.
  bool changes(const std::string& tensor) const { return trained_.count(tensor) || changed_.count(tensor); }
  // The implementation of each functional compiled so far, for example "cpu, portable".
  std::map<std::string, std::string> implementations() const;
  // The kernels of each operation compiled so far: "fp16 chunks, packed matmul".
  std::map<std::string, std::string> kernels() const;
  // Returns one line that lists what the host computes for a device with its own memory; "": nothing.
  std::string hosted() const;

 private:
  struct Branch {
    std::map<int64_t, StepProgram> by_batch;
    std::unique_ptr<CompiledStep> update;
    const float* norm = nullptr;
    std::vector<size_t> gathered_parts;
  };

  std::vector<int> conditionals() const;
  static bool shows_norm(const CyclePlan& plan);
  bool gathers() const { return plan_.training && plan_.settings.accumulate > 1; }
  void trace_branches(const std::vector<int>& conditionals);
  void learn(const Lowered& lowered);
  std::vector<FigureMetrics> figures_of(const Lowered& lowered);
  StepProgram compile(int64_t batch);
  const float* norm_in(const CompiledStep& step);

  CyclePlan& plan_;
  Metrics& metrics_;
  LayerMetrics* layer_metrics_;
  Predicates predicates_;
  bool shows_norm_;
  std::map<std::set<int>, Branch> by_branches_;
  Branch* chosen_ = nullptr;
  const CompiledStep* counted_ = nullptr;  // the step that products_ are of
  double products_ = 0;
  std::set<int> branches_;  // active
  std::vector<char> held_;  // by conditional
  std::vector<std::optional<TensorType>> result_types_;
  std::set<std::string> measured_, used_, trained_, changed_;
  std::map<std::string, std::set<std::string>> chosen_by_;
  std::map<std::string, std::set<std::string>> kernels_of_;  // by operation
};

}  // namespace harmonics::engine
