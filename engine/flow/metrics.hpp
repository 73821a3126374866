// Metrics of a running cycle: means over the last hundred steps or over the last samples, and conditions on them.
#pragma once

#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/flow/flow.hpp"

namespace harmonics::engine {

// Sums of a value over some steps. `sum` and `weight`: values weighted by the counted samples of their batch, and the
// weights. `active`: samples of batches that have a value. `samples`: samples of all batches.
struct StepSums {
  double sum = 0, weight = 0, active = 0, samples = 0;

  void add(const StepSums& o) { sum += o.sum, weight += o.weight, active += o.active, samples += o.samples; }
  // Batches without a value count as 0. Ignored positions do not count.
  double mean() const { return weight > 0 ? sum / weight * (active / samples) : 0; }
};

// A saved window: its slots in order, and the index of the slot written next. `ages`: for each slot, how many steps ago
// its step began, 1 for the last step; empty if the steps follow each other up to the last.
struct WindowState {
  std::vector<StepSums> steps;
  size_t next = 0;
  std::vector<int64_t> ages = {};
};

// Mean of the last hundred steps with a value. Allocates nothing.
class WindowMean {
 public:
  void add(const StepSums& step);
  void pass() { ++passed_; }  // a step in which nothing counts
  void add(double sum, double weight) { add({sum, weight, weight, weight}); }
  bool empty() const { return used_ == 0; }
  static constexpr size_t kSize = 100;
  double mean() const { return all_.mean(); }
  StepSums sums(int64_t last) const;  // over the last steps, at most those of the mean
  size_t size() const { return used_; }
  const StepSums& step(size_t i) const { return steps_[i]; }  // in no particular order
  WindowState state() const;
  void restore(const WindowState& state);

 private:
  void sum_up();

  std::array<StepSums, kSize> steps_{};
  std::array<int64_t, kSize> at_{};  // the number of each step
  int64_t passed_ = 0;
  size_t next_ = 0, used_ = 0;
  StepSums all_;
};

// Mean over the last samples: as many steps as have at most `samples` samples in total, but always the last step.
class SampleWindow {
 public:
  explicit SampleWindow(int64_t samples);
  void add(const StepSums& step);  // allocates nothing
  // Returns whether nothing counts. The tolerance covers rounding errors of subtraction.
  bool empty() const { return all_.weight <= 1e-9 * all_.samples; }
  double mean() const { return sums().mean(); }
  StepSums sums() const { return empty() ? StepSums{} : all_; }
  double samples() const { return all_.samples; }
  WindowState state() const;  // oldest first
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
  // Declares a metric: "loss", "LAYER.loss", "LAYER.accuracy". All metrics must be declared before the first step.
  size_t declare(const std::string& name);
  // Adds a part with a separate mean over the samples counted by `key`; "" is the part for which all samples count. The
  // value of a metric is the sum of the means of its parts.
  size_t part(size_t metric, const std::string& key);
  size_t parts(size_t metric) const { return windows_[metric].parts.size(); }
  const std::string& part_key(size_t metric, size_t part) const { return windows_[metric].parts[part].key; }
  // For each metric declared so far, also measures the mean over the last samples as "window.NAME".
  void keep_windows(int64_t samples);
  double window_value(size_t metric) const { return windows_[*windows_[metric].windowed].mean(); }
  // Returns the number of samples that these means cover.
  int64_t windowed() const;
  // Adds a batch of `samples` samples; add() then adds the values of its parts. They count when the step has ended.
  void begin_batch(size_t metric, double samples) { windows_[metric].samples += samples; }
  void add(size_t metric, size_t part, double value, double weight, double samples) {
    windows_[metric].parts[part].pending.add({weight > 0 ? value * weight : 0, weight, samples, 0});
  }
  void add(size_t metric, double value, double samples) {
    begin_batch(metric, samples), add(metric, 0, value, samples, samples);
  }
  void end_step();
  void drop_step();  // forgets what was added since the last step
  // Sets a value that is valid until the next set(): the result of a validation or an epoch.
  void set(size_t metric, double value);
  // Sets a value that the caller computes from the windows; NaN if there is none.
  void put(size_t metric, double value) { windows_[metric].put = value; }
  // Comparisons are false before the first value.
  bool holds(const Comparison& comparison) const;
  // Writes values in the order of declaration; NaN before the first value. Does not allocate if `to` has capacity.
  void values(std::vector<double>& to) const;
  std::vector<std::string> names() const;
  bool has(std::string_view name) const { return names_.count(name) != 0; }  // whether it is declared
  std::optional<double> find(std::string_view name) const;                   // none before the first value
  double value(size_t metric) const { return windows_[metric].mean(); }      // 0 before the first value
  // Mean and standard deviation of a metric over the last hundred steps. Does not allocate.
  struct Spread {
    size_t steps = 0;
    double mean = 0, deviation = 0;
  };
  Spread spread(size_t metric) const;
  std::map<std::string, double> all() const;
  // Means over the last `steps` steps, at most a hundred; without values set by set(), and without metrics of which
  // nothing counts in these steps.
  std::map<std::string, double> recent(int64_t steps) const;
  const std::string& name(size_t metric) const;
  // State for checkpoints.
  std::map<std::string, WindowState> windows() const;
  std::map<std::string, double> held() const;
  void restore(const std::map<std::string, WindowState>& windows, const std::map<std::string, double>& held);
  // Drops held values except those of these names.
  void keep_held(const std::vector<std::string>& names);

 private:
  struct Part {
    std::string key;
    WindowMean window;
    std::optional<SampleWindow> over = std::nullopt;  // used instead of `window`
    StepSums pending;                                 // sums of the current step

    bool empty() const { return over ? over->empty() : window.empty(); }
    double mean() const { return over ? over->mean() : window.mean(); }
    StepSums sums(int64_t last) const { return over ? over->sums() : window.sums(last); }
    WindowState state() const { return over ? over->state() : window.state(); }
    void restore(const WindowState& state);
  };
  struct Series {
    std::vector<Part> parts{1};                     // all samples count for the first
    int64_t over = 0;                               // if above 0, covers this many last samples instead of
                                                    // the last steps
    std::optional<size_t> windowed = std::nullopt;  // index of the series of this metric over the last samples
    bool held = false;
    std::optional<double> put = std::nullopt;
    double samples = 0;  // of the current step

    bool empty() const;
    double mean() const;
    std::optional<double> recent(int64_t steps) const;  // empty: nothing counts
  };
  static std::string kept_name(const std::string& name, const Part& part) {
    return part.key.empty() ? name : name + " of " + part.key;
  }
  void restore(const std::string& name, const WindowState& state);
  void align();

  std::map<std::string, size_t, std::less<>> names_;
  std::vector<Series> windows_;
};

}  // namespace harmonics::engine
