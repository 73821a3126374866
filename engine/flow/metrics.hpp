// Metrics of a running cycle: means over the last hundred steps, and conditions on them.
#pragma once

#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/flow/flow.hpp"

namespace harmonics::engine {

// A value over some steps: its sum, with each value weighted by the counted samples of its batch; the samples of the
// batches that had a value; the samples of all batches.
struct StepSums {
  double sum = 0, weight = 0, active = 0, samples = 0;

  void add(const StepSums& o) { sum += o.sum, weight += o.weight, active += o.active, samples += o.samples; }
  // Batches without the value count as 0; ignored positions do not count at all.
  double mean() const { return weight > 0 ? sum / weight * (active / samples) : 0; }
};

// A saved window: its slots in order, and the slot written next.
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
  size_t size() const { return used_; }
  const StepSums& step(size_t i) const { return steps_[i]; }  // unordered
  WindowState state() const;
  void restore(const WindowState& state);

 private:
  void sum_up();

  std::array<StepSums, kSize> steps_{};
  size_t next_ = 0, used_ = 0;
  StepSums all_;
};

// Mean over the last samples: over as many steps as have at most `samples` samples together, and always the last one.
class SampleWindow {
 public:
  explicit SampleWindow(int64_t samples);
  void add(const StepSums& step);  // allocates nothing
  // True if nothing counts; the tolerance covers the rounding of subtraction.
  bool empty() const { return all_.weight <= 1e-9 * all_.samples; }
  double mean() const { return empty() ? 0 : all_.mean(); }
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
  // Declares a metric; all names are declared before the first step: "loss", "LAYER.loss", "LAYER.accuracy".
  size_t declare(const std::string& name);
  // Adds a part with a separate mean over the samples counted by `key`; "": the part for which all samples count. The
  // value is the sum of its parts' means.
  size_t part(size_t metric, const std::string& key);
  size_t parts(size_t metric) const { return windows_[metric].parts.size(); }
  const std::string& part_key(size_t metric, size_t part) const { return windows_[metric].parts[part].key; }
  // Also keeps, as "window.NAME", the mean over the last samples of each metric declared so far.
  void keep_windows(int64_t samples);
  double window_value(size_t metric) const { return windows_[*windows_[metric].windowed].mean(); }
  // Number of samples that these means cover now.
  int64_t windowed() const;
  // Adds one batch of `samples` samples, followed by the values of its parts; they count once their step has ended.
  void begin_batch(size_t metric, double samples) { windows_[metric].samples += samples; }
  void add(size_t metric, size_t part, double value, double weight, double samples) {
    windows_[metric].parts[part].pending.add({weight > 0 ? value * weight : 0, weight, samples, 0});
  }
  void add(size_t metric, double value, double samples) {
    begin_batch(metric, samples), add(metric, 0, value, samples, samples);
  }
  void end_step();
  // Sets a value that holds until the next one: the result of a validation pass or an epoch.
  void set(size_t metric, double value);
  // Sets a value that the caller computes, and updates, from the windows; NaN: none now.
  void put(size_t metric, double value) { windows_[metric].put = value; }
  // Every comparison is false before the first value.
  bool holds(const Comparison& comparison) const;
  // Writes values in the order of declaration; NaN before the first value. Allocates nothing if `to` has capacity.
  void values(std::vector<double>& to) const;
  std::vector<std::string> names() const;
  bool has(std::string_view name) const { return names_.count(name) != 0; }  // whether it is declared
  std::optional<double> find(std::string_view name) const;                   // none before its first value
  double value(size_t metric) const { return windows_[metric].mean(); }      // 0 before the first value
  // Of the metric's values in the last hundred steps. Allocates nothing.
  struct Spread {
    size_t steps = 0;
    double mean = 0, deviation = 0;
  };
  Spread spread(size_t metric) const;
  std::map<std::string, double> all() const;
  std::map<std::string, double> moving() const;  // without values set by set()
  const std::string& name(size_t metric) const;
  // Checkpointed form.
  std::map<std::string, WindowState> windows() const;
  std::map<std::string, double> held() const;
  void restore(const std::map<std::string, WindowState>& windows, const std::map<std::string, double>& held);
  // Forgets held values except those of these names.
  void keep_held(const std::vector<std::string>& names);

 private:
  struct Part {
    std::string key;
    WindowMean window;
    std::optional<SampleWindow> over = std::nullopt;  // replaces `window`
    StepSums pending;                                 // of the running step

    bool empty() const { return over ? over->empty() : window.empty(); }
    double mean() const { return over ? over->mean() : window.mean(); }
    WindowState state() const { return over ? over->state() : window.state(); }
    void restore(const WindowState& state);
  };
  struct Series {
    std::vector<Part> parts{1};                     // for the first, all samples count
    int64_t over = 0;                               // if above 0, covers the last `over` samples instead of the last
                                                    // steps
    std::optional<size_t> windowed = std::nullopt;  // the series of this metric over its last samples
    bool held = false;
    std::optional<double> put = std::nullopt;
    double samples = 0;  // of the running step

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

}  // namespace harmonics::engine
