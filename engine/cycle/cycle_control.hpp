// CycleControl: connects a running cycle to a RunControl, through which other threads watch and control it.
#pragma once

#include <vector>

#include "engine/cycle/cycle_checkpoints.hpp"
#include "engine/cycle/cycle_observer.hpp"
#include "engine/cycle/cycle_readers.hpp"
#include "engine/cycle/run_control.hpp"

namespace harmonics::engine {

class CycleControl final : public CycleObserver {
 public:
  CycleControl(CycleContext& cycle, CycleRate& rate, CycleReaders& readers, CycleCheckpoints& checkpoints)
      : cycle_(cycle), rate_(rate), readers_(readers), checkpoints_(checkpoints) {}

  // Announces the run.
  void begin() override;
  // Waits while the run is paused.
  void before_step(StepBoundary::Turn& turn) override;
  // Copies the first samples of the batch if they were requested.
  void batch_began(const Slot& slot) override;
  void step_ended() override;
  void epoch_closed(const EpochReport& epoch, const Progress& progress) override;

 private:
  RunScene scene();
  std::vector<StreamProbe> probes() const;
  RunFigures figures() const;

  CycleContext& cycle_;
  CycleRate& rate_;
  CycleReaders& readers_;
  CycleCheckpoints& checkpoints_;
  double next_look_ = 0;        // time of the next reading of the window metrics
  std::vector<double> values_;  // values of the metrics
};

}  // namespace harmonics::engine
