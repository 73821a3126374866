// Schedules of the learning rate as a flow or a flag names them: 'cosine(warmup=500, final=0.1)'.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/training/named_settings.hpp"

namespace harmonics {

const std::vector<NamedRow>& schedule_rows();

struct Schedule {
  NamedSettings settings;
  bool is_constant() const;  // without warmup either
  std::string str() const { return settings.str(); }
};

// Errors as parse_named_settings has them.
Schedule parse_schedule(std::string_view text, Registry& registry = Registry::global());

// When a run ends, as far as that is known before it begins.
struct Horizon {
  std::optional<int64_t> steps;
  bool timed = false;  // it also ends by time
};

// A schedule over one run. Without a time limit a rate is a function of the step's number alone.
class LearningRate {
 public:
  // A schedule that needs to know the end of a run that has none: ErrorKind::Usage.
  LearningRate(const Schedule& schedule, double lr, const Horizon& horizon);
  // Of step `step`, counted from 0; `elapsed`: the part of the time limit that is over. Steps come in order.
  double at(int64_t step, double elapsed = 0);
  // Steps the run has and the warmup takes, when the run ends before its warmup does.
  std::optional<std::string> note() const;

 private:
  double factor(int64_t step, double progress) const;
  double of_plugin(int64_t step, double elapsed) const;
  double falling(double part) const;
  double decaying(int64_t step, double progress) const;
  double dropped(int64_t step, double progress) const;
  int64_t steps_of(double span) const;  // a span in steps, when the run's end is one
  double setting(const char* name) const { return schedule_.settings.number(name); }

  Schedule schedule_;
  std::shared_ptr<const AttributeMap> arguments_;  // a plugin's
  std::shared_ptr<const AttributeView> view_;
  double lr_;
  Horizon horizon_;
  double warmup_;                     // in steps, or below 1 a part of a timed run
  std::optional<int64_t> warm_from_;  // the first step after the warmup; by the clock: once it has come
  double begin_ = 0;                  // how much of the run is over then
};

}  // namespace harmonics
