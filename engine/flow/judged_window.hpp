// JudgedWindow: what a layer said of the last samples and what it should have said, so that any metric can be read over
// them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <harmonics/metric.hpp>

namespace harmonics {

// As it goes into a checkpoint and comes back: the steps it is of, the oldest first, and their rows back to back.
struct JudgedWindowState {
  std::vector<double> samples, rows;  // by step
  uint64_t outputs = 0;
  std::vector<float> predictions, targets;
  std::vector<int32_t> labels;  // of classes, instead of targets
};

// Of as many whole steps as have at most so many samples together, and of the last in any case. Once it is full nothing
// is allocated.
class JudgedWindow {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{64} << 20;
  // What so many samples take.
  static uint64_t bytes(uint64_t samples, uint64_t rows_per_sample, uint64_t outputs, bool classes);

  JudgedWindow(uint64_t samples, uint64_t outputs, bool classes)
      : most_(samples), outputs_(outputs), classes_(classes) {}

  // Of the step that runs: it counts when that ends.
  void add(const hx_metric_batch& batch, uint64_t samples);
  void end_step();

  uint64_t rows() const { return end_ - first_; }
  // The rows that count, into a batch that says the rest.
  void fill(hx_metric_batch& batch) const;
  // Since the last call, has anything changed?
  bool take_news() { return std::exchange(news_, false); }

  JudgedWindowState state() const;
  // False: it is of another layer. Before the first step.
  bool restore(const JudgedWindowState& state);

 private:
  struct Step {
    uint64_t samples = 0, rows = 0;
  };
  void make_room(uint64_t rows);

  uint64_t most_, outputs_;
  bool classes_;
  std::vector<Step> steps_;  // from steps_[begin_] on
  size_t begin_ = 0;
  uint64_t samples_ = 0;  // of these steps
  Step running_;
  std::vector<float> predictions_, targets_;
  std::vector<int32_t> labels_;
  uint64_t first_ = 0, end_ = 0;  // rows that count; behind them are those of the running step
  bool news_ = false;
};

}  // namespace harmonics
