// CycleGuard: skips batches whose loss is not finite or far above recent losses, and saves them to files.
#pragma once

#include <string>

#include "engine/cycle/finite_weights.hpp"

namespace harmonics::engine {

class CycleGuard {
 public:
  // Throws ErrorKind::Usage for a guard that returns to checkpoints in a run that writes none.
  CycleGuard(CycleContext& cycle, FiniteWeights& weights);

  // Returns the largest loss allowed for a batch of the next step: the mean of the last steps' losses plus the set
  // number of deviations. Infinite before kLeastSteps steps. The deviation is at least kLeastDeviation of the mean.
  // With accumulation it is multiplied by the square root of the batches per step, because a batch deviates more than
  // the mean of its group.
  float most() const;
  // Called for a batch within most().
  void passed() { in_a_row_ = 0; }
  // Called for a batch above most(), which has changed nothing. Saves it and returns true if the run continues without
  // it. Returns false if the loss is not finite; the caller then reports it. Throws ErrorKind::Diverged after too many
  // such batches in a row.
  bool skips(const Slot& slot, float loss);
  // Called before the first batch of a step. Returns to a checkpoint if skips() decided so.
  void before_step() {
    if (!returns_to_.empty()) return_to_checkpoint();
  }

  static constexpr size_t kLeastSteps = 20;
  static constexpr double kLeastDeviation = 0.01;

 private:
  std::string save(const Slot& slot, float loss);
  bool can_return();
  void return_to_checkpoint();

  CycleContext& cycle_;
  FiniteWeights& weights_;
  const LossGuardSettings* settings_;  // null if there is no guard
  const size_t loss_;                  // the metric "loss"
  int64_t in_a_row_ = 0;
  std::string returns_to_, returned_to_;  // checkpoints; empty for none
};

}  // namespace harmonics::engine
