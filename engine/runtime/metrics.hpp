// What a running cycle measures: means over the last hundred steps, and conditions on them.
#pragma once

#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/flow.hpp"

namespace harmonics {

// A window as it is kept: in the order of its places, next the one to be written.
struct WindowState {
  std::vector<double> sums, weights;
  size_t next = 0;
};

// Mean of the last hundred steps: sums of values, each with its weight (samples). Allocates nothing.
class WindowMean {
 public:
  void add(double sum, double weight);
  bool empty() const { return used_ == 0; }
  double mean() const { return weight_ > 0 ? sum_ / weight_ : 0; }
  static constexpr size_t kSize = 100;
  WindowState state() const;
  void restore(const WindowState& state);

 private:
  void sum_up();

  std::array<double, kSize> sums_{}, weights_{};
  size_t next_ = 0, used_ = 0;
  double sum_ = 0, weight_ = 0;
};

// Mean over the last samples: of as many steps as have at most so many together, and of the last in any case.
class SampleWindow {
 public:
  explicit SampleWindow(int64_t samples);
  void add(double sum, double weight);  // allocates nothing
  bool empty() const { return used_ == 0; }
  double mean() const { return weight_ > 0 ? sum_ / weight_ : 0; }
  double weight() const { return weight_; }
  WindowState state() const;  // the oldest first
  void restore(const WindowState& state);

 private:
  void sum_up();

  double most_;
  std::vector<double> sums_, weights_;
  size_t next_ = 0, used_ = 0;
  double sum_ = 0, weight_ = 0;
};

class Metrics {
 public:
  // Names are settled before the first step: "loss", "LAYER.loss", "LAYER.accuracy".
  size_t declare(const std::string& name);
  // Also keeps the mean of each that is declared so far over its last samples, as "window.NAME".
  void keep_windows(int64_t samples);
  double window_value(size_t metric) const { return windows_[*windows_[metric].windowed].mean(); }
  // How many samples these means are over now.
  int64_t windowed() const;
  // One batch's value; it counts once the step it is of is over.
  void add(size_t metric, double value, double weight) {
    windows_[metric].pending += value * weight;
    windows_[metric].weight += weight;
  }
  void end_step();
  // A value that holds until the next one: what a pass of validation, or an epoch, gave.
  void set(size_t metric, double value);
  // A value that somebody else works out from what is kept, and will again; NaN: there is none now.
  void put(size_t metric, double value) { windows_[metric].put = value; }
  // Before the first value every comparison is false.
  bool holds(const Comparison& comparison) const;
  // In the order of declaration; NaN before the first value. Allocates nothing where there is room.
  void values(std::vector<double>& to) const;
  std::vector<std::string> names() const;
  std::optional<double> find(std::string_view name) const;  // none before its first value
  double value(size_t metric) const { return windows_[metric].mean(); }  // 0 before the first value
  std::map<std::string, double> all() const;
  std::map<std::string, double> moving() const;  // without those that were set
  const std::string& name(size_t metric) const;
  // As they go into a checkpoint and come back.
  std::map<std::string, WindowState> windows() const;
  std::map<std::string, double> held() const;
  void restore(const std::map<std::string, WindowState>& windows, const std::map<std::string, double>& held);
  // Values that hold are forgotten when nothing of these names is measured any more.
  void keep_held(const std::vector<std::string>& names);

 private:
  struct Series {
    WindowMean window;
    std::optional<SampleWindow> samples = std::nullopt;  // instead
    std::optional<size_t> windowed = std::nullopt;       // the series that has this one's
    bool held = false;
    std::optional<double> put = std::nullopt;
    double pending = 0, weight = 0;  // of the step that is running

    bool empty() const { return put ? std::isnan(*put) : samples ? samples->empty() : window.empty(); }
    double mean() const { return put ? *put : samples ? samples->mean() : window.mean(); }
    WindowState state() const { return samples ? samples->state() : window.state(); }
  };
  std::map<std::string, size_t, std::less<>> names_;
  std::vector<Series> windows_;
};

}  // namespace harmonics
