// CycleConditions: ends a cycle before its streams do: after a number of steps or a time, by `until`, or on request.
#pragma once

#include "engine/cycle/cycle_context.hpp"

namespace harmonics::engine {

class CycleConditions {
 public:
  explicit CycleConditions(CycleContext& cycle) : cycle_(cycle) {}

  // Throws ErrorKind::Name if a condition reads a metric that no step of this cycle measures, as it would never hold.
  void expect_measured() const;
  // Ends the run if a condition holds after the last step.
  void check();
  // Checks the conditions on metrics only.
  void check_metrics();
  // Ends the run if the last epoch was validated and none of the last `patience` validations had a smaller loss than
  // all before them.
  void check_patience();

 private:
  void expect_one_of(const std::vector<std::string>& names, const char* word, const Comparison& condition) const;

  CycleContext& cycle_;
};

}  // namespace harmonics::engine
