// FiniteWeights: keeps the weights of a training cycle finite. Copies them periodically, finds infinite and NaN
// numbers, and undoes a repeated step that caused them.
#pragma once

#include <optional>
#include <string>

#include "engine/cycle/cycle_state.hpp"

namespace harmonics::engine {

class FiniteWeights final : public CycleObserver {
 public:
  FiniteWeights(CycleContext& cycle, const CycleRate& rate, CycleState& state)
      : cycle_(cycle), rate_(rate), state_(state) {}

  // Called when the weights are those before the first step.
  void open();
  // Returns the name of a tensor that has become infinite or NaN, or "".
  std::string first_non_finite() const;
  // Throws NonFiniteWeights if there is such a tensor.
  void expect_finite() const;
  // Copies the state after the last step. Called with the boundary held, or when no step runs.
  void keep();
  // Copies it unless the copy has it already or it is not finite. Called with the boundary held, or when no step runs.
  void keep_last();
  // While set, other threads can write checkpoints from the copy if it is of the last step. Resetting waits for a
  // checkpoint that is being written.
  void offer_copy(bool offered);

  // ---- within a step ----
  // While steps are repeated, undoes a step that made a number non-finite, and ends the run. Returns whether it did.
  bool undo_if_spoilt();
  // Called when the loss of a batch is not finite; the batch has changed nothing. Undoes the step if steps are
  // repeated. Otherwise throws ErrorKind::Diverged with the first non-finite number.
  void refuse(const CompiledStep& program, const Slot& slot);

  // Returns why the steps since the last copy cannot be repeated bit for bit, or "" if they can.
  std::string why_not_repeated() const;

  void begin() override { keep(); }
  void step_began() override;
  void step_ended() override;
  void steps_ended() override { expect_finite(); }

 private:
  void undo_step();

  CycleContext& cycle_;
  const CycleRate& rate_;
  CycleState& state_;
  std::optional<double> kept_rate_;  // rate set from outside at the time of the last copy
};

}  // namespace harmonics::engine
