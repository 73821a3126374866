// CompiledStep: a compiled program of a graph and its input buffers. A cycle runs it repeatedly.
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

// A mean over the counted positions of a batch. If `counted` is null, all positions count.
struct BatchMean {
  const float* value = nullptr;
  const float* counted = nullptr;
  double places = 1;

  // Returns the weight relative to other batches: `samples` times the counted share of positions.
  double weight(double samples) const { return counted ? static_cast<double>(*counted) * samples / places : samples; }
};

class CompiledStep {
 public:
  CompiledStep(Lowered lowered, ParameterStore& store, Executor& executor, const CompileOptions& options);
  CompiledStep(const CompiledStep&) = delete;  // because inputs point into the object
  CompiledStep& operator=(const CompiledStep&) = delete;

  // Checks that all class and symbol numbers are in range. Throws ErrorKind::Stream with the number and its position.
  void check_indices(const void* const* streams) const;

  // Sets the inputs of the next run. `streams` has one buffer per Lowered::inputs. Allocates nothing.
  void set(const void* const* streams, float lr, int64_t step, uint64_t seed);
  void set_keep(bool keep) { values_.set_keep(keep); }  // see StepInput
  void set_scale(float scale, size_t part = 0) { values_.set_scale(scale, part); }
  // Set the memory of parameters and states for the following runs; see Executable::bind.
  void bind(std::span<void* const> addresses) { executable_->bind(addresses); }
  void bind(std::span<const std::shared_ptr<DeviceTensor>> tensors) { executable_->bind(tensors); }
  // These throw ErrorKind::InputOutput if a mapped file of weights has become shorter, which makes the results invalid.
  void run() {
    executable_->run(inputs_.data());
    expect_whole_files();
  }
  void run_forward() {
    executable_->run_forward(inputs_.data());
    expect_whole_files();
  }
  // For programs with a loss. Changes nothing if the loss is not finite or above `most`; returns whether it changed
  // states.
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
  // Scalar results, resolved once: the loss and its parts; for each LossInfo its loss parts and the number of correct
  // classes (null value: not counted).
  const float* loss() const { return loss_; }
  const std::vector<BatchMean>& parts() const { return parts_; }
  const std::vector<BatchMean>& layer_parts(size_t i) const { return layer_parts_[i]; }
  const BatchMean& correct(size_t i) const { return correct_[i]; }
  // Returns the figures of Lowered::losses[i], in their order.
  const std::vector<BatchMean>& figures(size_t i) const { return figures_[i]; }

 private:
  struct Indices {  // a stream of indices below `limit`
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
  std::vector<std::shared_ptr<const MappedFile>> files_;  // files that contain tensors of the store
  std::unique_ptr<Executable> executable_;
  std::vector<const void*> inputs_;
  std::vector<Indices> indices_;
  std::vector<int> stream_slot_;  // by program input: index of the stream, or -1
  StepValues values_;
  const float* loss_ = nullptr;
  std::vector<BatchMean> parts_, correct_;
  std::vector<std::vector<BatchMean>> figures_;
  std::vector<std::vector<BatchMean>> layer_parts_;
};

}  // namespace harmonics::engine
