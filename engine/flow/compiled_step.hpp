// CompiledStep: a compiled program of a graph with its inputs laid out, run repeatedly by a cycle.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/execution/executable.hpp"
#include "engine/flow/lowering.hpp"
#include "engine/program/step_input.hpp"

namespace harmonics::engine {

// A mean over the counted positions of a batch; null `counted`: over all positions.
struct BatchMean {
  const float* value = nullptr;
  const float* counted = nullptr;
  double places = 1;

  // Returns the weight relative to other batches: the counted share of `samples` samples.
  double weight(double samples) const { return counted ? static_cast<double>(*counted) * samples / places : samples; }
};

class CompiledStep {
 public:
  CompiledStep(Lowered lowered, ParameterStore& store, Executor& executor, const CompileOptions& options);
  CompiledStep(const CompiledStep&) = delete;  // inputs point into the object
  CompiledStep& operator=(const CompiledStep&) = delete;

  // Checks that class and symbol numbers are in range. Throws ErrorKind::Stream with the number and its position.
  void check_indices(const void* const* streams) const;

  // `streams`: one buffer per Lowered::inputs. Allocates nothing.
  void set(const void* const* streams, float lr, int64_t step, uint64_t seed);
  void set_keep(bool keep) { values_.set_keep(keep); }  // see StepInput
  void set_scale(float scale, size_t part = 0) { values_.set_scale(scale, part); }
  // The memory of parameters and states for the runs that follow; see Executable::bind.
  void bind(std::span<void* const> addresses) { executable_->bind(addresses); }
  void bind(std::span<const std::shared_ptr<DeviceTensor>> tensors) { executable_->bind(tensors); }
  // Each throws ErrorKind::InputOutput if a mapped file of weights has become shorter: the results are void then.
  void run() {
    executable_->run(inputs_.data());
    expect_whole_files();
  }
  void run_forward() {
    executable_->run_forward(inputs_.data());
    expect_whole_files();
  }
  // Of programs with a loss, which changes nothing above `most`.
  bool run_if_finite(float most = std::numeric_limits<float>::infinity()) {
    const bool finite = executable_->run_if_finite(inputs_.data(), loss_, most);
    expect_whole_files();
    return finite;
  }
  void run_timed(PlanTimes& times) { executable_->run_timed(inputs_.data(), times); }
  void run_empty() { executable_->run_empty(inputs_.data()); }

  float scalar(const std::string& output) const { return *executable_->output(output).data<float>(); }
  const Lowered& lowered() const { return lowered_; }
  const Executable& executable() const { return *executable_; }
  // Scalar results, resolved once: the loss and its parts; then, per LossInfo, its loss and the number of correct
  // classes (null value: not counted).
  const float* loss() const { return loss_; }
  const std::vector<BatchMean>& parts() const { return parts_; }
  const std::vector<BatchMean>& layer_parts(size_t i) const { return layer_parts_[i]; }
  const BatchMean& correct(size_t i) const { return correct_[i]; }
  // Of Lowered::losses[i]: its figures, in their order.
  const std::vector<BatchMean>& figures(size_t i) const { return figures_[i]; }

 private:
  struct Indices {  // a stream whose numbers index one of `limit` classes
    size_t stream;
    std::string name;
    TensorType type;
    int64_t limit;
  };

  void expect_whole_files() const {
    for (const auto& file : files_) file->expect_whole();
  }
  BatchMean mean_of(const std::string& output, int counted) const;
  std::vector<BatchMean> means_of(const std::vector<LossPart>& parts) const;

  Lowered lowered_;
  std::vector<std::shared_ptr<const MappedFile>> files_;  // that the store's tensors lie in
  std::unique_ptr<Executable> executable_;
  std::vector<const void*> inputs_;
  std::vector<Indices> indices_;
  std::vector<int> stream_slot_;  // per program input: index into the streams, or -1
  StepValues values_;
  const float* loss_ = nullptr;
  std::vector<BatchMean> parts_, correct_;
  std::vector<std::vector<BatchMean>> figures_;
  std::vector<std::vector<BatchMean>> layer_parts_;
};

}  // namespace harmonics::engine
