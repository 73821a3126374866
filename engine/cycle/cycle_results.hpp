// CycleResults: moves the values of a cycle to its consumers: from the program of a batch into its slot, then to the
// sinks.
#pragma once

#include <string>
#include <vector>

#include "engine/cycle/cycle_context.hpp"
#include "engine/cycle/cycle_feed.hpp"
#include "engine/cycle/finite_results.hpp"

namespace harmonics::engine {

class CycleResults {
 public:
  explicit CycleResults(CycleContext& cycle) : cycle_(cycle), finite_(cycle.plan) {}

  // Copies the values of the batch that `program` has just run. Called in the step stage.
  void keep(const StepProgram& program, Slot& slot);
  // Passes the values of the slot to the sinks. Called in the output stage.
  void deliver(const Slot& slot) const;
  // Returns messages about values that are infinite or NaN.
  std::vector<std::string> notes() const { return finite_.notes(); }

 private:
  CycleContext& cycle_;
  FiniteResults finite_;
};

}  // namespace harmonics::engine
