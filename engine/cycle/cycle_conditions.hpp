// CycleConditions: what ends a cycle before its streams do: a number of steps, a time, `until`, a stop from outside.
#pragma once

#include "engine/cycle/cycle_context.hpp"

namespace harmonics::engine {

class CycleConditions {
 public:
  explicit CycleConditions(CycleContext& cycle) : cycle_(cycle) {}

  // Throws ErrorKind::Name if a condition reads a metric that no step of this cycle measures: it would never hold.
  void expect_measured() const;
  // Ends the run if a condition holds after the last step.
  void check();
  // The same for metrics only.
  void check_metrics();
  // Called after a validation: ends the run if none of the last `patience` ones had a smaller loss than those before.
  void check_patience();

 private:
  void expect_one_of(const std::vector<std::string>& names, const char* word, const Comparison& condition) const;

  CycleContext& cycle_;
};

}  // namespace harmonics::engine
