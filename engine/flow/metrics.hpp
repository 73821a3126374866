// What a running cycle measures: means over the last hundred steps, and conditions on them.
#pragma once

#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/flow/flow.hpp"

namespace harmonics {

// A value over some steps: its sum, each value times its weight, which is how many samples of its batch count; the
// samples of the batches that had it, and of all batches.
struct StepSums {
  double sum = 0, weight = 0, active = 0, samples = 0;

  void add(const StepSums& o) { sum += o.sum, weight += o.weight, active += o.active, samples += o.samples; }
  // Batches without the value count as 0, places that do not count not at all.
  double mean() const { return weight > 0 ? sum / weight * (active / samples) : 0; }
};

// A window as it is kept: in the order of its places, next the one to be written.
struct WindowState {
  std::vector<StepSums> steps;
  size_t next = 0;
};

// Mean of the last hundred steps. Allocates nothing.
class WindowMean {
 public:
  void add(const StepSums& step);
  void add(double sum, double weight) { add({sum, weight, weight, weight}); }
  bool empty() const { return used_ == 0; }
  double mean() const { return all_.mean(); }
  static constexpr size_t kSize = 100;
  WindowState state() const;
  void restore(const WindowState& state);

 private:
  void sum_up();

  std::array<StepSums, kSize> steps_{};
  size_t next_ = 0, used_ = 0;
  StepSums all_;
};

// Mean over the last samples: of as many steps as have at most so many together, and of the last in any case.
class SampleWindow {
 public:
  explicit SampleWindow(int64_t samples);
  void add(const StepSums& step);  // allocates nothing
  // Nothing counts; subtraction leaves rounding behind.
  bool empty() const { return all_.weight <= 1e-9 * all_.samples; }
  double mean() const { return empty() ? 0 : all_.mean(); }
  double samples() const { return all_.samples; }
  WindowState state() const;  // the oldest first
  void restore(const WindowState& state);

 private:
  void sum_up();

  double most_;
  std::vector<StepSums> steps_;
  size_t next_ = 0, used_ = 0;
  StepSums all_;
};

class Metrics {
 public:
  // Names are settled before the first step: "loss", "LAYER.loss", "LAYER.accuracy".
  size_t declare(const std::string& name);
  // A part of it that is a mean of its own, over what counts by `key`; "": the part that all samples count for. The
  // value is the sum of its parts' means.
  size_t part(size_t metric, const std::string& key);
  size_t parts(size_t metric) const { return windows_[metric].parts.size(); }
  const std::string& part_key(size_t metric, size_t part) const { return windows_[metric].parts[part].key; }
  // Also keeps the mean of each that is declared so far over its last samples, as "window.NAME".
  void keep_windows(int64_t samples);
  double window_value(size_t metric) const { return windows_[*windows_[metric].windowed].mean(); }
  // How many samples these means are over now.
  int64_t windowed() const;
  // One batch of so many samples, and then the values its parts have in it; they count once the step they are of is
  // over.
  void begin_batch(size_t metric, double samples) { windows_[metric].samples += samples; }
  void add(size_t metric, size_t part, double value, double weight, double samples) {
    windows_[metric].parts[part].pending.add({weight > 0 ? value * weight : 0, weight, samples, 0});
  }
  void add(size_t metric, double value, double samples) {
    begin_batch(metric, samples), add(metric, 0, value, samples, samples);
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
  std::optional<double> find(std::string_view name) const;               // none before its first value
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
  struct Part {
    std::string key;
    WindowMean window;
    std::optional<SampleWindow> over = std::nullopt;  // instead
    StepSums pending;                                 // of the step that is running

    bool empty() const { return over ? over->empty() : window.empty(); }
    double mean() const { return over ? over->mean() : window.mean(); }
    WindowState state() const { return over ? over->state() : window.state(); }
    void restore(const WindowState& state);
  };
  struct Series {
    std::vector<Part> parts{1};                     // the first is of all samples
    int64_t over = 0;                               // of the last so many samples, not of the last steps
    std::optional<size_t> windowed = std::nullopt;  // the series that has this one's over its last samples
    bool held = false;
    std::optional<double> put = std::nullopt;
    double samples = 0;  // of the step that is running

    bool empty() const;
    double mean() const;
  };
  static std::string kept_name(const std::string& name, const Part& part) {
    return part.key.empty() ? name : name + " of " + part.key;
  }
  void restore(const std::string& name, const WindowState& state);
  void align();

  std::map<std::string, size_t, std::less<>> names_;
  std::vector<Series> windows_;
};

}  // namespace harmonics
