// MetricWindow: the predictions and targets of a layer for the last samples. Any metric can be computed over them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <harmonics/metric.hpp>

namespace harmonics::engine {

// State for checkpoints: the steps covered, oldest first, and their rows, contiguous.
struct MetricWindowState {
  std::vector<double> samples, rows;  // by step
  uint64_t outputs = 0;
  std::vector<float> predictions, targets;
  std::vector<int32_t> labels;  // class labels, instead of targets
};

// Contains as many complete steps as have at most `samples` samples in total, but always the last step. Allocates
// nothing once it is full.
class MetricWindow {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{64} << 20;
  // Returns the memory for `samples` samples.
  static uint64_t bytes(uint64_t samples, uint64_t rows_per_sample, uint64_t outputs, bool classes);

  MetricWindow(uint64_t samples, uint64_t outputs, bool classes)
      : most_(samples), outputs_(outputs), classes_(classes) {}

  // Adds rows of the current step; they count from end_step() on.
  void add(const hx_metric_batch& batch, uint64_t samples);
  void end_step();

  uint64_t rows() const { return end_ - first_; }
  // Sets the fields of the batch that point to the rows; the caller sets the others.
  void fill(hx_metric_batch& batch) const;
  // Returns whether anything has changed since the last call.
  bool take_news() { return std::exchange(news_, false); }

  MetricWindowState state() const;
  // Returns false if the state belongs to another layer. Must be called before the first step.
  bool restore(const MetricWindowState& state);

 private:
  struct Step {
    uint64_t samples = 0, rows = 0;
  };
  void make_room(uint64_t rows);

  uint64_t most_, outputs_;
  bool classes_;
  std::vector<Step> steps_;  // starting at steps_[begin_]
  size_t begin_ = 0;
  uint64_t samples_ = 0;  // samples in these steps
  Step running_;
  std::vector<float> predictions_, targets_;
  std::vector<int32_t> labels_;
  uint64_t first_ = 0, end_ = 0;  // rows that count; rows of the current step follow them
  bool news_ = false;
};

}  // namespace harmonics::engine
