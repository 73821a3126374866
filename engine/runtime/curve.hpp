// The learning curve of a run.
#pragma once

#include <vector>

#include "engine/runtime/cycle_runtime.hpp"

namespace harmonics {

// A training curve of bounded size: when full, neighbours are averaged and every point covers twice the steps.
class Curve {
 public:
  void add(int64_t step, double seconds, double loss, double accuracy) {
    sum_loss_ += loss;
    sum_accuracy_ += accuracy;
    if (++pending_ < stride_) return;
    points_.push_back({step, seconds, sum_loss_ / static_cast<double>(pending_), accuracy < 0 ? -1 : sum_accuracy_ / static_cast<double>(pending_)});
    sum_loss_ = sum_accuracy_ = 0;
    pending_ = 0;
    if (points_.size() == kCurvePoints) halve();
  }
  std::vector<CurvePoint> take() { return std::move(points_); }
  Curve() { points_.reserve(kCurvePoints); }

 private:
  void halve() {
    for (size_t i = 0; i + 1 < points_.size(); i += 2)
      points_[i / 2] = {points_[i + 1].step, points_[i + 1].seconds, (points_[i].loss + points_[i + 1].loss) / 2, (points_[i].accuracy + points_[i + 1].accuracy) / 2};
    points_.resize(points_.size() / 2);
    stride_ *= 2;
  }
  static constexpr size_t kCurvePoints = 512;
  std::vector<CurvePoint> points_;
  int64_t stride_ = 1, pending_ = 0;
  double sum_loss_ = 0, sum_accuracy_ = 0;
};

}  // namespace harmonics
