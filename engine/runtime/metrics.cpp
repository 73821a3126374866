#include "engine/runtime/metrics.hpp"

namespace harmonics {

void WindowMean::add(double sum, double weight) {
  sums_[next_] = sum;
  weights_[next_] = weight;
  next_ = (next_ + 1) % kSize;
  if (used_ < kSize) ++used_;
  // Summed anew: adding and taking away would drift over millions of steps.
  sum_ = weight_ = 0;
  for (size_t i = 0; i < used_; ++i) sum_ += sums_[i], weight_ += weights_[i];
}

size_t Metrics::declare(const std::string& name) {
  const auto [it, fresh] = names_.emplace(name, windows_.size());
  if (fresh) windows_.emplace_back();
  return it->second;
}

void Metrics::end_step() {
  for (Series& s : windows_) {
    if (s.weight > 0) s.window.add(s.pending, s.weight);
    s.pending = s.weight = 0;
  }
}

bool Metrics::holds(const Comparison& c) const {
  const auto it = names_.find(c.metric);
  if (it == names_.end() || windows_[it->second].window.empty()) return false;
  const double v = windows_[it->second].window.mean();
  if (c.op == "<") return v < c.value;
  if (c.op == "<=") return v <= c.value;
  if (c.op == ">") return v > c.value;
  return v >= c.value;
}

std::map<std::string, double> Metrics::all() const {
  std::map<std::string, double> result;
  for (const auto& [name, i] : names_)
    if (!windows_[i].window.empty()) result[name] = windows_[i].window.mean();
  return result;
}

}  // namespace harmonics
