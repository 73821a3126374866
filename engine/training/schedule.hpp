// Learning rate schedules as named in flows and options: 'cosine(warmup=500, final=0.1)'.
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
  bool is_constant() const;  // no warmup either
  std::string str() const { return settings.str(); }
};

// Errors as in parse_named_settings().
Schedule parse_schedule(std::string_view text, Registry& registry = Registry::global());

// The end of a run, as far as it is known at the start.
struct Horizon {
  std::optional<int64_t> steps;
  bool timed = false;  // may also end by a time limit
};

// A schedule applied to one run. Without a time limit the rate depends on the step number only.
class LearningRate {
 public:
  // Throws ErrorKind::Usage if the schedule needs the end of the run and there is none.
  LearningRate(const Schedule& schedule, double lr, const Horizon& horizon);
  // Rate of step `step`, counted from 0; `elapsed`: fraction of the time limit. Call in order of steps.
  double at(int64_t step, double elapsed = 0);
  // A note if the run ends before its warmup does.
  std::optional<std::string> note() const;

 private:
  double factor(int64_t step, double progress) const;
  double of_plugin(int64_t step, double elapsed) const;
  double falling(double part) const;
  double decaying(int64_t step, double progress) const;
  double dropped(int64_t step, double progress) const;
  int64_t steps_of(double span) const;  // converts a span to steps; the run must have a number of steps
  double setting(const char* name) const { return schedule_.settings.number(name); }

  Schedule schedule_;
  std::shared_ptr<const AttributeMap> arguments_;  // a plugin's arguments
  std::shared_ptr<const AttributeView> view_;
  double lr_;
  Horizon horizon_;
  double warmup_;                     // steps, or below 1 a fraction of a timed run
  std::optional<int64_t> warm_from_;  // first step after the warmup; in timed runs set when it is reached
  double begin_ = 0;                  // progress of the run at that step
};

}  // namespace harmonics::engine
