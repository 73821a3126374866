// CycleObserver: takes part in a running cycle at the boundaries of its steps and epochs. CycleRun owns the observers
// and calls each event for all of them in this order, which events rely on:
//
//   CycleReload, FiniteWeights, CycleState, CycleCheckpoints, CycleControl, CycleLive
//
// All events of a run are called by one thread at a time. "Boundary held" means that this thread has its turn, so no
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

  // Programs are compiled and the state is restored; no step has run. Called in the thread of run(), boundary not held.
  virtual void begin() {}

  // ---- thread of the step stage, boundary held ----
  // Called before a step. May wait, release the boundary meanwhile (turn.leave_during), and end the run.
  virtual void before_step(StepBoundary::Turn& /*turn*/) {}
  // The first batch of a step is next. The run does not end before it.
  virtual void step_began() {}
  // The batch has been checked and runs next.
  virtual void batch_began(const Slot& /*slot*/) {}
  // Weights, counts and position are those after a complete step. Its conditions were checked and may have ended the
  // run.
  virtual void step_ended() {}
  // An epoch was validated and reported; `progress` is that of its end. After the last step the boundary is not held,
  // and no step follows.
  virtual void epoch_closed(const EpochReport& /*epoch*/, const Progress& /*progress*/) {}
  // The position is the start of the next epoch.
  virtual void epoch_began() {}

  // ---- thread of run(), boundary not held; no stage runs ----
  // The last step is over. Other threads may still hold the boundary.
  virtual void steps_ended() {}
  // The last epoch is closed, and the report is complete except for notes.
  virtual void run_ended() {}
  // An error occurred. The batches of the unfinished step are about to be dropped.
  virtual void step_dropped() {}
  // An error occurred. The counts are those of the last complete step.
  virtual void run_failed(const Error& /*error*/) {}
};

}  // namespace harmonics::engine
