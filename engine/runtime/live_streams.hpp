// LiveStreams: the live streams of a run: where they stand in checkpoints, what is durable, and waking who waits for them.
#pragma once

#include <string>
#include <vector>

#include "engine/runtime/cycle_plan.hpp"
#include "engine/runtime/run_state.hpp"

namespace harmonics {

class LiveStreams {
 public:
  // The plan must outlive this, and so must its streams.
  explicit LiveStreams(CyclePlan& plan);

  bool any() const { return !members_.empty(); }
  // Before the first sample of a run that keeps checkpoints: from the beginning, or where `from` stood. A stream without positions is
  // left alone. Throws ErrorKind::Weights when `from` does not say where a stream stood.
  void begin(const RunState* from);

  // May be called from any thread.
  void store(RunState& state) const;          // state.index says how far the run is
  void durable(const RunState& state) const;  // it is safe on the disk
  bool wants_durable() const;
  void cancel() const;

 private:
  struct Member {
    size_t number;  // in the plan's reader
    std::string name;
    Source* source;
    bool restored = false;
  };
  CyclePlan& plan_;
  std::vector<Member> members_;
};

}  // namespace harmonics
