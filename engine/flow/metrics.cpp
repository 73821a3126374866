#include "engine/flow/metrics.hpp"

#include <algorithm>
#include <limits>

namespace harmonics::engine {

void WindowMean::add(const StepSums& step) {
  steps_[next_] = step;
  at_[next_] = passed_++;
  next_ = (next_ + 1) % kSize;
  if (used_ < kSize) ++used_;
  sum_up();
}

StepSums WindowMean::sums(int64_t last) const {
  StepSums sums;
  for (size_t i = 0; i < used_; ++i)
    if (at_[i] >= passed_ - last) sums.add(steps_[i]);
  return sums;
}

// Recomputes the sum, because adding and subtracting drifts over millions of steps.
void WindowMean::sum_up() {
  all_ = {};
  for (size_t i = 0; i < used_; ++i) all_.add(steps_[i]);
}

WindowState WindowMean::state() const {
  WindowState state{{steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(used_)}, next_};
  bool follow = true;
  for (size_t i = 0; i < used_; ++i) {
    const size_t slot = (next_ + kSize - used_ + i) % kSize;
    follow = follow && at_[slot] == passed_ - static_cast<int64_t>(used_ - i);
  }
  for (size_t i = 0; i < used_ && !follow; ++i) state.ages.push_back(passed_ - at_[i]);
  return state;
}

void WindowMean::restore(const WindowState& state) {
  used_ = std::min(state.steps.size(), kSize);
  std::copy_n(state.steps.begin(), used_, steps_.begin());
  next_ = state.next % kSize;
  passed_ = static_cast<int64_t>(used_);
  for (size_t i = 0; i < used_; ++i) at_[(next_ + kSize - used_ + i) % kSize] = static_cast<int64_t>(i);
  for (size_t i = 0; i < std::min(used_, state.ages.size()); ++i) at_[i] = passed_ - state.ages[i];
  sum_up();
}

SampleWindow::SampleWindow(int64_t samples)
    : most_(static_cast<double>(samples)), steps_(static_cast<size_t>(samples) + 1) {}

void SampleWindow::add(const StepSums& step) {
  if (used_ == steps_.size()) --used_;
  steps_[next_] = step;
  next_ = (next_ + 1) % steps_.size();
  ++used_;
  all_.add(step);
  for (size_t oldest = next_ + steps_.size() - used_; used_ > 1 && all_.samples > most_; ++oldest, --used_) {
    const StepSums& s = steps_[oldest % steps_.size()];
    all_.add({-s.sum, -s.weight, -s.active, -s.samples});
  }
  if (next_ == 0) sum_up();  // subtraction drifts
}

void SampleWindow::sum_up() {
  all_ = {};
  for (size_t i = next_ + steps_.size() - used_; i < next_ + steps_.size(); ++i) all_.add(steps_[i % steps_.size()]);
}

WindowState SampleWindow::state() const {
  WindowState s;
  for (size_t i = next_ + steps_.size() - used_; i < next_ + steps_.size(); ++i)
    s.steps.push_back(steps_[i % steps_.size()]);
  return s;
}

void SampleWindow::restore(const WindowState& state) {
  for (const StepSums& step : state.steps) add(step);
}

void Metrics::Part::restore(const WindowState& state) {
  if (over)
    over->restore(state);
  else
    window.restore(state);
}

bool Metrics::Series::empty() const {
  return put ? std::isnan(*put) : std::all_of(parts.begin(), parts.end(), [](const Part& p) { return p.empty(); });
}

double Metrics::Series::mean() const {
  if (put) return *put;
  double mean = 0;
  for (const Part& p : parts) mean += p.mean();
  return mean;
}

std::optional<double> Metrics::Series::recent(int64_t steps) const {
  if (put) return empty() ? std::nullopt : put;
  std::optional<double> mean;
  for (const Part& p : parts)
    if (const StepSums sums = p.sums(steps); sums.weight > 0) mean = mean.value_or(0) + sums.mean();
  return mean;
}

void Metrics::keep_windows(int64_t samples) {
  for (const std::string& name : names()) {
    const size_t at = declare(name), window = declare("window." + name);
    windows_[at].windowed = window;
    windows_[window].over = samples;
    windows_[window].parts.front().over.emplace(samples);
    for (size_t i = 1; i < windows_[at].parts.size(); ++i) part(window, windows_[at].parts[i].key);
  }
}

int64_t Metrics::windowed() const {
  for (const Series& s : windows_)
    if (s.over > 0) return static_cast<int64_t>(s.parts.front().over->samples());
  return 0;
}

size_t Metrics::declare(const std::string& name) {
  const auto [it, fresh] = names_.emplace(name, windows_.size());
  if (fresh) windows_.emplace_back();
  return it->second;
}

size_t Metrics::part(size_t metric, const std::string& key) {
  Series& s = windows_[metric];
  for (size_t i = 0; i < s.parts.size(); ++i)
    if (s.parts[i].key == key) return i;
  s.parts.emplace_back().key = key;
  if (s.over > 0) s.parts.back().over.emplace(s.over);
  return s.parts.size() - 1;
}

// A step without counted samples keeps the value over the last steps, but is part of the window of last samples.
void Metrics::end_step() {
  for (Series& s : windows_) {
    const bool counts = std::any_of(s.parts.begin(), s.parts.end(), [](const Part& p) { return p.pending.weight > 0; });
    for (size_t i = 0; i < s.parts.size(); ++i) {
      Part& p = s.parts[i];
      p.pending.samples = s.samples;
      counts ? p.window.add(p.pending) : p.window.pass();
      if (s.samples > 0 && s.windowed) windows_[*s.windowed].parts[i].over->add(p.pending);
      p.pending = {};
    }
    s.samples = 0;
  }
}

void Metrics::drop_step() {
  for (Series& s : windows_) {
    for (Part& p : s.parts) p.pending = {};
    s.samples = 0;
  }
}

void Metrics::set(size_t metric, double value) {
  WindowMean& window = windows_[metric].parts.front().window;
  window = {};
  window.add({value, 1, 1, 1});
  windows_[metric].held = true;
}

std::optional<double> Metrics::find(std::string_view name) const {
  const auto it = names_.find(name);
  if (it == names_.end() || windows_[it->second].empty()) return std::nullopt;
  return windows_[it->second].mean();
}

void Metrics::values(std::vector<double>& to) const {
  to.resize(windows_.size());
  for (size_t i = 0; i < windows_.size(); ++i)
    to[i] = windows_[i].empty() ? std::numeric_limits<double>::quiet_NaN() : windows_[i].mean();
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
    if (!windows_[i].held && !windows_[i].put && !windows_[i].empty())
      for (const Part& p : windows_[i].parts) result[kept_name(name, p)] = p.state();
  return result;
}

std::map<std::string, double> Metrics::held() const {
  std::map<std::string, double> result;
  for (const auto& [name, i] : names_)
    if (windows_[i].held && !windows_[i].empty()) result[name] = windows_[i].mean();
  return result;
}

void Metrics::restore(const std::map<std::string, WindowState>& windows, const std::map<std::string, double>& held) {
  for (const auto& [name, state] : windows) restore(name, state);
  align();
  for (const auto& [name, value] : held) set(declare(name), value);
}

void Metrics::restore(const std::string& kept, const WindowState& state) {
  const std::string name = kept.substr(0, kept.find(' '));
  if (name.starts_with("window.") && !names_.count(name)) return;  // this run keeps no windows
  if (name == kept) return windows_[declare(name)].parts.front().restore(state);
  if (!names_.count(name)) return;
  for (Part& p : windows_[names_.find(name)->second].parts)
    if (kept_name(name, p) == kept) p.restore(state);
}

// Aligns the parts of a series to the same steps: a new part gets empty values for earlier steps.
void Metrics::align() {
  for (Series& s : windows_) {
    const auto longest = std::max_element(s.parts.begin(), s.parts.end(), [](const Part& a, const Part& b) {
      return a.state().steps.size() < b.state().steps.size();
    });
    WindowState before = longest->state();
    for (StepSums& step : before.steps) step = {0, 0, 0, step.samples};
    for (Part& p : s.parts)
      if (p.empty() && !before.steps.empty()) p.restore(before);
  }
}

void Metrics::keep_held(const std::vector<std::string>& names) {
  for (const auto& [name, i] : names_)
    if (windows_[i].held && std::find(names.begin(), names.end(), name) == names.end())
      windows_[i].parts.front().window = {};
}

Metrics::Spread Metrics::spread(size_t metric) const {
  const std::vector<Part>& parts = windows_[metric].parts;
  Spread spread{parts.front().window.size()};
  const auto value = [&](size_t step) {
    double sum = 0;
    for (const Part& p : parts) sum += step < p.window.size() ? p.window.step(step).mean() : 0;
    return sum;
  };
  if (spread.steps == 0) return spread;
  const auto count = static_cast<double>(spread.steps);
  for (size_t i = 0; i < spread.steps; ++i) spread.mean += value(i) / count;
  double squares = 0;
  for (size_t i = 0; i < spread.steps; ++i) squares += (value(i) - spread.mean) * (value(i) - spread.mean);
  spread.deviation = std::sqrt(squares / count);
  return spread;
}

std::map<std::string, double> Metrics::all() const {
  std::map<std::string, double> result;
  for (const auto& [name, i] : names_)
    if (!windows_[i].empty()) result[name] = windows_[i].mean();
  return result;
}

std::map<std::string, double> Metrics::recent(int64_t steps) const {
  std::map<std::string, double> result;
  for (const auto& [name, i] : names_)
    if (const auto mean = windows_[i].recent(steps); mean && !windows_[i].held) result[name] = *mean;
  return result;
}

}  // namespace harmonics::engine
