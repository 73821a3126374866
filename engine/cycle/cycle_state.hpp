// CycleState: the state of a running cycle after its last complete step, as a checkpoint stores it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "engine/cycle/cycle_context.hpp"
#include "engine/cycle/cycle_observer.hpp"
#include "engine/cycle/cycle_rate.hpp"
#include "engine/cycle/live_streams.hpp"

namespace harmonics::engine {

class CycleState final : public CycleObserver {
 public:
  CycleState(CycleContext& cycle, const CycleRate& rate, const LiveStreams& streams)
      : cycle_(cycle), rate_(rate), streams_(streams) {}

  // ---- boundary held ----
  RunState of_last_step();
  // Returns the state of_last_step() and puts its tensors into `file`, for a checkpoint.
  RunState fill(TensorFile& file);

  // Returns whether a run can end within a step, which requires several batches per step. With one batch per step, a
  // failed step has changed nothing.
  bool has_unfinished_steps() const { return cycle_.plan.training && cycle_.plan.settings.accumulate > 1; }

  // Returns why a checkpoint of this run cannot be resumed, or "" if it can.
  const std::string& not_resumable() const { return not_resumable_; }
  // Takes over the reason from the cycle that this one continues.
  void continue_from(const LiveReading& former) { not_resumable_ = former.not_resumable; }
  // Checks the streams for such a reason and notes it.
  void note_if_not_resumable();

  void step_began() override;
  void step_dropped() override;

 private:
  CycleContext& cycle_;
  const CycleRate& rate_;
  const LiveStreams& streams_;
  std::string not_resumable_;
  // Running statistics at the start of the step; each of its batches changes them.
  std::map<std::string, std::vector<std::byte>> statistics_;
};

}  // namespace harmonics::engine
