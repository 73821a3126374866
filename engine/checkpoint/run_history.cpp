#include "engine/checkpoint/run_history.hpp"

#include <algorithm>

namespace harmonics::engine {

void RunHistory::begin(std::vector<std::string> names) {
  names_ = std::move(names);
  points_.assign(kPoints, {});
  values_.assign(kPoints * names_.size(), 0);
  size_ = 0;
  stride_ = 1;
  next_ = 0;
}

void RunHistory::add(const Point& point, const std::vector<double>& values) {
  if (points_.empty()) return;
  if (size_ == kPoints) halve();
  points_[size_] = point;
  std::copy(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(names_.size()),
            values_.begin() + static_cast<std::ptrdiff_t>(size_ * names_.size()));
  ++size_;
  next_ = point.step + stride_;
}

void RunHistory::halve() {
  const size_t n = names_.size();
  for (size_t i = 1; 2 * i < size_; ++i) {
    points_[i] = points_[2 * i];
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(2 * i * n), n,
                values_.begin() + static_cast<std::ptrdiff_t>(i * n));
  }
  size_ = (size_ + 1) / 2;
  stride_ *= 2;
}

void Speed::begin(double now, double count) {
  next_ = used_ = 0;
  last_ = now;
  count_ = count;
  marks_[next_++] = {now, count};
  used_ = 1;
}

void Speed::add(double now, double count) {
  last_ = now;
  count_ = count;
  const Mark& last = marks_[(next_ + kMarks - 1) % kMarks];
  if (used_ > 0 && now - last.now < kWindow / (kMarks - 4)) return;
  marks_[next_] = {now, count};
  next_ = (next_ + 1) % kMarks;
  used_ = std::min(used_ + 1, kMarks);
}

double Speed::at(double now) const {
  if (used_ == 0 || now - last_ > kWindow) return 0;
  const size_t oldest = (next_ + kMarks - used_) % kMarks;
  Mark from = marks_[oldest];
  for (size_t i = 1; i < used_; ++i) {
    const Mark& m = marks_[(oldest + i) % kMarks];
    if (m.now > now - kWindow) break;
    from = m;
  }
  const double since = std::min(now - from.now, kWindow);  // older marks precede a pause in counting
  return since > 0 ? (count_ - from.count) / std::max(since, 1e-3) : 0;
}

}  // namespace harmonics::engine
