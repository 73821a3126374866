// CycleRate: the learning rate of a running cycle: that of the schedule, or one set from outside instead.
#pragma once

#include <optional>
#include <string>

#include "engine/cycle/cycle_context.hpp"

namespace harmonics::engine {

class CycleRate {
 public:
  explicit CycleRate(CycleContext& cycle) : cycle_(cycle) {}

  // Restores a rate that was set before the checkpoint.
  void restore(const RunState& from) { set_ = told_ = from.learning_rate_set; }
  // Keeps the restored rate only if the training is the same. Returns a note about it, or "" if no rate was set.
  std::string keep(bool same_training);
  // Prepares the schedule of a training cycle. Throws ErrorKind::Usage if the schedule needs a known end of the run and
  // there is none.
  void prepare();
  // From this call on the control holds the set rate.
  void follow_control() { controlled_ = true; }

  // Returns the rate set from outside, if any.
  std::optional<double> set() const;
  // Returns the rate of the next batch. Reports a change of the set rate as an event. Requires the boundary.
  float next();

 private:
  CycleContext& cycle_;
  std::optional<LearningRate> schedule_;  // for training only
  std::optional<double> set_;             // until the control holds it
  std::optional<double> told_;            // the set rate of the last event
  bool controlled_ = false;
};

}  // namespace harmonics::engine
