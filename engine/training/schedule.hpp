// Learning rate schedules, written 'cosine(warmup=500, final=0.1)' in flows and options.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plugin/named_settings.hpp"

namespace harmonics::engine {

const std::vector<NamedRow>& schedule_rows();

struct Schedule {
  NamedSettings settings;
  bool is_constant() const;  // "constant" without warmup
  std::string str() const { return settings.str(); }
};

// Errors as in parse_named_settings().
Schedule parse_schedule(std::string_view text, Registry& registry = Registry::global());

// Length of a run, as far as it is known at the start.
struct Horizon {
  std::optional<int64_t> steps;
  bool timed = false;  // may also end by a time limit
};

// A schedule applied to one run. Without a time limit the rate depends only on the step number.
class LearningRate {
 public:
  // Throws ErrorKind::Usage if the schedule depends on the length of the run and the run has none.
  LearningRate(const Schedule& schedule, double lr, const Horizon& horizon);
  // Returns the rate of step `step`, from 0. `elapsed`: fraction of the time limit that has passed. Must be called in
  // the order of steps.
  double at(int64_t step, double elapsed = 0);
  // Returns a note if the run ends during its warmup.
  std::optional<std::string> note() const;

 private:
  void end_warmup(int64_t step, double progress);
  double factor(int64_t step, double progress) const;
  double of_plugin(int64_t step, double elapsed) const;
  double falling(double part) const;
  double decaying(int64_t step, double progress) const;
  double dropped(int64_t step, double progress) const;
  int64_t steps_of(double span) const;  // converts a span to steps; requires a known number of steps
  double setting(const char* name) const { return schedule_.settings.number(name); }

  Schedule schedule_;
  std::shared_ptr<const AttributeMap> arguments_;  // a plugin's arguments
  std::shared_ptr<const AttributeView> view_;
  double lr_;
  Horizon horizon_;
  double warmup_;                     // steps, or below 1 a fraction of a timed run
  std::optional<int64_t> warm_from_;  // first step after the warmup; timed runs set it at the first rate after it
  double begin_ = 0;                  // progress of the run at warm_from_
};

}  // namespace harmonics::engine
