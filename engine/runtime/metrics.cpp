#include "engine/runtime/metrics.hpp"

#include <algorithm>
#include <limits>

namespace harmonics {

void WindowMean::add(double sum, double weight) {
  sums_[next_] = sum;
  weights_[next_] = weight;
  next_ = (next_ + 1) % kSize;
  if (used_ < kSize) ++used_;
  sum_up();
}

// Anew: adding and taking away would drift over millions of steps.
void WindowMean::sum_up() {
  sum_ = weight_ = 0;
  for (size_t i = 0; i < used_; ++i) sum_ += sums_[i], weight_ += weights_[i];
}

WindowState WindowMean::state() const {
  const auto used = static_cast<std::ptrdiff_t>(used_);
  return {{sums_.begin(), sums_.begin() + used}, {weights_.begin(), weights_.begin() + used}, next_};
}

void WindowMean::restore(const WindowState& state) {
  used_ = std::min(state.sums.size(), kSize);
  std::copy_n(state.sums.begin(), used_, sums_.begin());
  std::copy_n(state.weights.begin(), used_, weights_.begin());
  next_ = state.next % kSize;
  sum_up();
}

SampleWindow::SampleWindow(int64_t samples) : most_(static_cast<double>(samples)), sums_(static_cast<size_t>(samples) + 1), weights_(sums_.size()) {}

void SampleWindow::add(double sum, double weight) {
  if (used_ == sums_.size()) --used_;
  sums_[next_] = sum;
  weights_[next_] = weight;
  next_ = (next_ + 1) % sums_.size();
  ++used_;
  sum_ += sum;
  weight_ += weight;
  for (size_t oldest = next_ + sums_.size() - used_; used_ > 1 && weight_ > most_; ++oldest, --used_) {
    sum_ -= sums_[oldest % sums_.size()];
    weight_ -= weights_[oldest % sums_.size()];
  }
  if (next_ == 0) sum_up();  // taking away drifts
}

void SampleWindow::sum_up() {
  sum_ = weight_ = 0;
  for (size_t i = next_ + sums_.size() - used_; i < next_ + sums_.size(); ++i) sum_ += sums_[i % sums_.size()], weight_ += weights_[i % sums_.size()];
}

WindowState SampleWindow::state() const {
  WindowState s;
  for (size_t i = next_ + sums_.size() - used_; i < next_ + sums_.size(); ++i) s.sums.push_back(sums_[i % sums_.size()]), s.weights.push_back(weights_[i % sums_.size()]);
  return s;
}

void SampleWindow::restore(const WindowState& state) {
  for (size_t i = 0; i < state.sums.size(); ++i) add(state.sums[i], state.weights[i]);
}

void Metrics::keep_windows(int64_t samples) {
  for (const std::string& name : names()) {
    const size_t at = declare(name), window = declare("window." + name);
    windows_[at].windowed = window;
    windows_[window].samples.emplace(samples);
  }
}

int64_t Metrics::windowed() const {
  for (const Series& s : windows_)
    if (s.samples) return static_cast<int64_t>(s.samples->weight());
  return 0;
}

size_t Metrics::declare(const std::string& name) {
  const auto [it, fresh] = names_.emplace(name, windows_.size());
  if (fresh) windows_.emplace_back();
  return it->second;
}

void Metrics::end_step() {
  for (Series& s : windows_) {
    if (s.weight > 0) s.window.add(s.pending, s.weight);
    if (s.weight > 0 && s.windowed) windows_[*s.windowed].samples->add(s.pending, s.weight);
    s.pending = s.weight = 0;
  }
}

void Metrics::set(size_t metric, double value) {
  windows_[metric].window = {};
  windows_[metric].window.add(value, 1);
  windows_[metric].held = true;
}

std::optional<double> Metrics::find(std::string_view name) const {
  const auto it = names_.find(name);
  if (it == names_.end() || windows_[it->second].empty()) return std::nullopt;
  return windows_[it->second].mean();
}

void Metrics::values(std::vector<double>& to) const {
  to.resize(windows_.size());
  for (size_t i = 0; i < windows_.size(); ++i) to[i] = windows_[i].empty() ? std::numeric_limits<double>::quiet_NaN() : windows_[i].mean();
}

std::vector<std::string> Metrics::names() const {
  std::vector<std::string> names(windows_.size());
  for (const auto& [name, i] : names_) names[i] = name;
  return names;
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

const std::string& Metrics::name(size_t metric) const {
  for (const auto& [name, i] : names_)
    if (i == metric) return name;
  throw Error(ErrorKind::Internal, "no metric has the number " + std::to_string(metric));
}

std::map<std::string, WindowState> Metrics::windows() const {
  std::map<std::string, WindowState> result;
  for (const auto& [name, i] : names_)
    if (!windows_[i].held && !windows_[i].put && !windows_[i].empty()) result[name] = windows_[i].state();
  return result;
}

std::map<std::string, double> Metrics::held() const {
  std::map<std::string, double> result;
  for (const auto& [name, i] : names_)
    if (windows_[i].held && !windows_[i].empty()) result[name] = windows_[i].mean();
  return result;
}

void Metrics::restore(const std::map<std::string, WindowState>& windows, const std::map<std::string, double>& held) {
  for (const auto& [name, state] : windows) {
    if (name.starts_with("window.") && !names_.count(name)) continue;  // this run keeps none
    Series& s = windows_[declare(name)];
    if (s.samples) s.samples->restore(state);
    else s.window.restore(state);
  }
  for (const auto& [name, value] : held) set(declare(name), value);
}

void Metrics::keep_held(const std::vector<std::string>& names) {
  for (const auto& [name, i] : names_)
    if (windows_[i].held && std::find(names.begin(), names.end(), name) == names.end()) windows_[i].window = {};
}

std::map<std::string, double> Metrics::all() const {
  std::map<std::string, double> result;
  for (const auto& [name, i] : names_)
    if (!windows_[i].empty()) result[name] = windows_[i].mean();
  return result;
}

std::map<std::string, double> Metrics::moving() const {
  std::map<std::string, double> result;
  for (const auto& [name, i] : names_)
    if (!windows_[i].empty() && !windows_[i].held) result[name] = windows_[i].mean();
  return result;
}

}  // namespace harmonics
