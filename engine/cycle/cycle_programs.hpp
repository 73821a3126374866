// CyclePrograms: the compiled steps of a cycle, one per batch size and set of branches.
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

// Metrics that show a figure of a loss.
struct FigureMetrics {
  size_t loss, figure;        // index in Lowered::losses, and index among its figures
  std::vector<size_t> shown;  // indices of the metrics "LAYER.margin", and "margin" for the first layer that has it
  std::vector<std::string> names;
};

// A compiled step and its metrics, resolved so that a step looks up nothing by name.
struct StepProgram {
  std::unique_ptr<CompiledStep> step;
  std::vector<size_t> parts;                           // by Lowered::parts: indices of the parts of metric "loss"
  std::vector<size_t> loss_metrics, accuracy_metrics;  // by Lowered::losses: indices of metrics
  std::vector<std::vector<size_t>> layer_parts;        // by loss metric: indices of its parts
  std::vector<FigureMetrics> figures;                  // reported by the losses
  std::vector<const HTensor*> results;                 // by wanted node; null if this branch does not compute it
  MetricAddresses metric_addresses;                    // only with requested metrics
  const float* gradient_norm = nullptr;                // the norm that the step clips by; null if it does not clip
};

class CyclePrograms {
 public:
  // `layer_metrics` evaluates the requested metrics; null for none.
  CyclePrograms(CyclePlan& plan, Metrics& metrics, LayerMetrics* layer_metrics)
      : plan_(plan),
        metrics_(metrics),
        layer_metrics_(layer_metrics),
        predicates_(plan.graph.graph().conditionals),
        shows_norm_(shows_norm(plan)),
        result_types_(plan.wanted.size()) {}

  // Compiles the branches that hold at `counts`, before the clock starts. If the cycle has conditions, also traces
  // every branch, so that errors in any of them are reported now.
  void compile_first(const RunCounts& counts);
  // Recompiles with the current functions. If this throws, the caller must restore the old functions and call it again.
  void renew(const RunCounts& counts);
  // Traces every branch and thereby declares its parameters.
  void trace();
  // Selects the branches whose conditions hold at `counts`.
  void choose_branches(const RunCounts& counts);
  StepProgram& of_batch(int64_t count);
  // Returns the step that applies the gradients accumulated over a group of batches; null if each batch is a step.
  CompiledStep* update() const { return chosen_->update.get(); }
  const float* norm_of_update() const { return chosen_->norm; }  // see StepProgram::gradient_norm
  // Returns the FLOP of matrix products per sample in steps of full batches, recomputation included; 0 for none.
  double products_of_sample();
  // Returns the parts of the loss whose gradients are accumulated separately, indexed as StepProgram::parts.
  const std::vector<size_t>& gathered_parts() const { return chosen_->gathered_parts; }
  LoweringOptions options(int64_t batch) const;

  const std::vector<std::optional<TensorType>>& result_types() const {
    return result_types_;
  }  // by wanted node, type of one sample
  const std::set<std::string>& measured() const { return measured_; }
  // The parameters used by everything traced so far, and those that its steps change.
  const std::set<std::string>& used() const { return used_; }
  const std::set<std::string>& trained() const { return trained_; }
  // Returns whether a program traced so far changes the tensor. Every program that has run was traced.
  bool changes(const std::string& tensor) const { return trained_.count(tensor) || changed_.count(tensor); }
  // Returns the implementations of each functional compiled so far, for example "cpu, portable".
  std::map<std::string, std::string> implementations() const;
  // Returns the kernels of each operation compiled so far, for example "fp16 chunks, packed matmul".
  std::map<std::string, std::string> kernels() const;
  // Returns a line that lists what the host computes for a device with its own memory; "" for nothing.
  std::string hosted() const;
  // Returns whether a program reads a weight of a stored type.
  bool reads_stored_types() const { return reads_stored_types_; }

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
  const CompiledStep* counted_ = nullptr;  // the step that products_ belongs to
  double products_ = 0;
  std::set<int> branches_;  // active
  std::vector<char> held_;  // by conditional
  std::vector<std::optional<TensorType>> result_types_;
  std::set<std::string> measured_, used_, trained_, changed_;
  bool reads_stored_types_ = false;
  std::map<std::string, std::set<std::string>> chosen_by_;
  std::map<std::string, std::set<std::string>> kernels_of_;  // by operation
};

}  // namespace harmonics::engine
