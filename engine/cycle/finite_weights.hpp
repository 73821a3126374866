// FiniteWeights: keeps the weights of a training cycle finite: copies them from time to time, finds numbers that have
// become infinite or NaN, and undoes a repeated step that made them so.
#pragma once

#include <optional>
#include <string>

#include "engine/cycle/cycle_state.hpp"

namespace harmonics::engine {

class FiniteWeights final : public CycleObserver {
 public:
  FiniteWeights(CycleContext& cycle, const CycleRate& rate, CycleState& state)
      : cycle_(cycle), rate_(rate), state_(state) {}

  // Called once the weights are those before the first step.
  void open();
  // Returns a tensor that has become infinite or NaN, or an empty string.
  std::string first_non_finite() const;
  // Throws NonFiniteWeights if there is one.
  void expect_finite() const;
  // Copies the state after the last step. Boundary held, or no step runs.
  void keep();
  // Copies it unless it is in the copy already, or not finite. Boundary held, or no step runs.
  void keep_last();
  // While set, checkpoints can be written from the copy of the last step, if there is one. Once it is reset, none is
  // being written.
  void offer_copy(bool offered);

  // ---- within a step ----
  // While steps are repeated, undoes a step that made a number non-finite, which ends the run. Returns whether it did.
  bool undo_if_spoilt();
  // The loss of the batch is not finite, and the batch has changed nothing. Undoes the step if steps are repeated;
  // otherwise throws ErrorKind::Diverged with the first non-finite number.
  void refuse(const CompiledStep& program, const Slot& slot);

  // Returns why the steps since the last copy cannot be repeated bit for bit, or an empty string if they can.
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
  std::optional<double> kept_rate_;  // rate set from outside when the last copy was made
};

}  // namespace harmonics::engine
