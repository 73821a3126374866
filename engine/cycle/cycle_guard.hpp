// CycleGuard: leaves out batches whose loss is not finite or far above those before it, and saves them.
#pragma once

#include <string>

#include "engine/cycle/finite_weights.hpp"

namespace harmonics::engine {

class CycleGuard {
 public:
  // Throws ErrorKind::Usage for a guard that returns to checkpoints in a run that writes none.
  CycleGuard(CycleContext& cycle, FiniteWeights& weights);

  // The largest loss that a batch of the next step may have. The mean of the last steps' losses and their deviation
  // decide, from kLeastSteps steps on; a deviation below kLeastDeviation of the mean counts as that. Batches of a group
  // deviate more than its mean: by the root of their number.
  float most() const;
  // A batch was within most().
  void passed() { in_a_row_ = 0; }
  // The loss of the batch is not, and the batch has changed nothing. Saves it. Returns whether the run goes on without
  // it; false: the loss is not finite, and the caller reports it. Throws ErrorKind::Diverged after too many in a row.
  bool skips(const Slot& slot, float loss);
  // No batch of the next step has run: returns to a checkpoint if skips() decided so.
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
  const LossGuardSettings* settings_;  // null: there is no guard
  const size_t loss_;                  // the metric
  int64_t in_a_row_ = 0;
  std::string returns_to_, returned_to_;  // checkpoints; empty: none
};

}  // namespace harmonics::engine
