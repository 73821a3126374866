#include "engine/runtime/metrics.hpp"

namespace harmonics {

void WindowMean::add(double value, double weight) {
  values_[next_] = value * weight;
  weights_[next_] = weight;
  next_ = (next_ + 1) % kSize;
  if (used_ < kSize) ++used_;
  // Summed anew: adding and taking away would drift over millions of steps.
  sum_ = weight_ = 0;
  for (size_t i = 0; i < used_; ++i) sum_ += values_[i], weight_ += weights_[i];
}

size_t Metrics::declare(const std::string& name) {
  const auto [it, fresh] = names_.emplace(name, windows_.size());
  if (fresh) windows_.emplace_back();
  return it->second;
}

bool Metrics::holds(const Comparison& c) const {
  const auto it = names_.find(c.metric);
  if (it == names_.end() || windows_[it->second].empty()) return false;
  const double v = windows_[it->second].mean();
  if (c.op == "<") return v < c.value;
  if (c.op == "<=") return v <= c.value;
  if (c.op == ">") return v > c.value;
  return v >= c.value;
}

std::map<std::string, double> Metrics::all() const {
  std::map<std::string, double> result;
  for (const auto& [name, i] : names_)
    if (!windows_[i].empty()) result[name] = windows_[i].mean();
  return result;
}

}  // namespace harmonics
