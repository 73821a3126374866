// CycleObserver: takes part in a running cycle at the boundaries of its steps and epochs. CycleRun owns the observers
// and calls each event for all of them in this order, which events rely on:
//
//   CycleReload, FiniteWeights, CycleState, CycleCheckpoints, CycleControl, CycleLive
//
// All events of one run come from one thread at a time. "Boundary held" means that the thread has its turn, so that no
// other thread holds the boundary (StepBoundary). An event that throws ends the run with that error.
#pragma once

#include <harmonics/error.hpp>

#include "engine/cycle/cycle_feed.hpp"
#include "engine/cycle/step_boundary.hpp"
#include "engine/measure/cycle_report.hpp"

namespace harmonics::engine {

class CycleObserver {
 public:
  virtual ~CycleObserver() = default;

  // Programs are compiled and the state is restored; no step has run. Thread of run(), boundary not held.
  virtual void begin() {}

  // ---- thread of the step stage, boundary held ----
  // Before a step. May wait, leave the boundary to others meanwhile (turn.leave_during), and end the run.
  virtual void before_step(StepBoundary::Turn& /*turn*/) {}
  // The first batch of a step comes next; the run does not end before it.
  virtual void step_began() {}
  // The batch was checked and runs next.
  virtual void batch_began(const Slot& /*slot*/) {}
  // Weights, counts and position are those after a whole step; its conditions were checked and may have ended the run.
  virtual void step_ended() {}
  // An epoch was validated and reported; `progress` is that of its end. After the last step the boundary is not held,
  // and no step follows.
  virtual void epoch_closed(const EpochReport& /*epoch*/, const Progress& /*progress*/) {}
  // The position is the start of the next epoch.
  virtual void epoch_began() {}

  // ---- thread of run(), boundary not held; no stage runs any more ----
  // The last step is over. Other threads may still hold the boundary.
  virtual void steps_ended() {}
  // The last epoch was closed, and the report is complete but for notes.
  virtual void run_ended() {}
  // After an error: the batches of the unfinished step are about to be dropped.
  virtual void step_dropped() {}
  // After an error: the counts are those of the last whole step.
  virtual void run_failed(const Error& /*error*/) {}
};

}  // namespace harmonics::engine
