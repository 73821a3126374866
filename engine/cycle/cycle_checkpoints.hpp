// CycleCheckpoints: writes the checkpoints of a running cycle, and resumes it from one.
#pragma once

#include <optional>
#include <string>

#include "engine/cycle/cycle_observer.hpp"
#include "engine/cycle/finite_weights.hpp"

namespace harmonics::engine {

class CycleCheckpoints final : public CycleObserver {
 public:
  CycleCheckpoints(CycleContext& cycle, CycleRate& rate, CycleState& state, const FiniteWeights& weights)
      : cycle_(cycle), rate_(rate), state_(state), weights_(weights) {}

  // ---- before the first step ----
  // Checks whether checkpoints of this run can be written and resumed.
  void open();
  // Restores position and counts from the checkpoint. Called before programs are compiled.
  void restore();
  // Restores the tensors declared since restore(), and notes differences to the run of the checkpoint. Throws
  // ErrorKind::Weights if the checkpoint belongs to another graph.
  void end_restore();

  // Writes a checkpoint of the last step and returns when it is on disk. Returns false if none are written. Throws if
  // writing fails. Callable from any thread that does not hold the boundary.
  bool write_now();
  // Starts writing a checkpoint in the background if one became due after the last step, or if `wanted`. Callable from
  // any thread that does not hold the boundary.
  void write_between_steps(bool wanted);
  // Reports checkpoints written since the last call, and failed writes. Requires the boundary.
  void tell();

  void step_ended() override { write_if_due(false); }
  void epoch_closed(const EpochReport& epoch, const Progress& progress) override;
  void epoch_began() override;
  void steps_ended() override;
  void run_ended() override;
  void run_failed(const Error& error) override;

 private:
  void expect_belonging() const;
  std::vector<std::string> differences(const RunState& was, const RunState& is) const;
  void write_if_due(bool epoch_ended);
  void write_last();
  void write_best();

  CycleContext& cycle_;
  CycleRate& rate_;
  CycleState& state_;
  const FiniteWeights& weights_;
  std::optional<double> loss_;    // validation loss of the current weights
  std::string told_;              // path of the checkpoint in the last event
  int64_t written_between_ = -1;  // step of the last checkpoint written by write_between_steps()
};

}  // namespace harmonics::engine
