// CycleRate: the learning rate of a running cycle: the schedule's, or one set from outside in its place.
#pragma once

#include <optional>
#include <string>

#include "engine/cycle/cycle_context.hpp"

namespace harmonics::engine {

class CycleRate {
 public:
  explicit CycleRate(CycleContext& cycle) : cycle_(cycle) {}

  // Takes over the rate that was set before the checkpoint.
  void restore(const RunState& from) { set_ = told_ = from.learning_rate_set; }
  // Keeps the restored rate only for the same training. Returns a note about it, or an empty string if none was set.
  std::string keep(bool same_training);
  // Prepares the schedule of a training cycle. Throws ErrorKind::Usage if it needs the end of the run and there is
  // none.
  void prepare();
  // The control holds the set rate from now on.
  void follow_control() { controlled_ = true; }

  // Returns the rate that was set in place of the schedule.
  std::optional<double> set() const;
  // Returns the rate of the next batch. A change of the set rate is an event. Requires the boundary.
  float next();

 private:
  CycleContext& cycle_;
  std::optional<LearningRate> schedule_;  // training
  std::optional<double> set_;             // until the control holds it
  std::optional<double> told_;            // as in the last event
  bool controlled_ = false;
};

}  // namespace harmonics::engine
