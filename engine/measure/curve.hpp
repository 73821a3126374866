// The learning curve of a run.
#pragma once

#include <vector>

#include "engine/measure/cycle_report.hpp"

namespace harmonics::engine {

// State of a curve during the run.
struct CurveState {
  std::vector<CurvePoint> points;
  int64_t stride = 1, pending = 0, judged = 0;  // steps per point; steps in the pending point; those with an accuracy
  double sum_loss = 0, sum_accuracy = 0;
};

// A learning curve of bounded size. When it is full, neighbours are averaged and every point covers twice the steps.
class Curve {
 public:
  static constexpr size_t kPoints = 512;
  void add(int64_t step, double seconds, double loss, double accuracy) {
    now_.sum_loss += loss;
    if (accuracy >= 0) now_.sum_accuracy += accuracy, ++now_.judged;
    if (++now_.pending < now_.stride) return;
    now_.points.push_back({step, seconds, now_.sum_loss / static_cast<double>(now_.pending),
                           now_.judged == 0 ? -1 : now_.sum_accuracy / static_cast<double>(now_.judged)});
    now_.sum_loss = now_.sum_accuracy = 0;
    now_.pending = now_.judged = 0;
    if (now_.points.size() == kPoints) halve();
  }
  std::vector<CurvePoint> take() { return std::move(now_.points); }
  Curve() { now_.points.reserve(kPoints); }
  const CurveState& state() const { return now_; }
  void restore(CurveState state) {
    now_ = std::move(state);
    now_.points.reserve(kPoints);
  }

 private:
  static double half(double a, double b) { return a < 0 ? b : b < 0 ? a : (a + b) / 2; }
  void halve() {
    for (size_t i = 0; i + 1 < now_.points.size(); i += 2)
      now_.points[i / 2] = {now_.points[i + 1].step, now_.points[i + 1].seconds,
                            (now_.points[i].loss + now_.points[i + 1].loss) / 2,
                            half(now_.points[i].accuracy, now_.points[i + 1].accuracy)};
    now_.points.resize(now_.points.size() / 2);
    now_.stride *= 2;
  }
  CurveState now_;
};

}  // namespace harmonics::engine
