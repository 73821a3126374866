// LiveStreams: the live streams of a run: where they stand in checkpoints, what is durable, and waking who waits for
// them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/run_state.hpp"
#include "engine/cycle/cycle_plan.hpp"

namespace harmonics {

class LiveStreams {
 public:
  // The plan's streams must outlive this.
  explicit LiveStreams(CyclePlan& plan);

  bool any() const { return !members_.empty(); }
  // Before the first sample of a run that keeps checkpoints: from the beginning, or where `from` stood. A stream
  // without positions is left alone. Throws ErrorKind::Weights when `from` does not say where a stream stood.
  void begin(const RunState* from);
  // Instead, in a cycle that goes on where another stopped: as restored() said there.
  void go_on(const std::vector<char>& restored);
  std::vector<char> restored() const;

  // Steps have used what lies before these places, by the plan's producers. Not while store() runs.
  void use(const std::vector<uint64_t>& reads) { used_ = reads; }

  // May be called from any thread.
  void store(RunState& state) const;
  void durable(const RunState& state) const;  // it is safe on the disk
  bool wants_durable() const;
  // Samples that no sender has any more since this was made, and what was refused since its source was opened, of each
  // stream that has any.
  struct Gone {
    uint64_t lost = 0, refused = 0;
    bool at_most_once = false;  // nobody would have sent them again
    std::string last_error;
  };
  std::map<std::string, Gone> gone() const;
  void cancel() const;

 private:
  struct Member {
    size_t number;  // in the plan's reader
    std::string name;
    Source* source;
    std::string type;  // what its source announced
    uint64_t lost_before;
    bool restored = false;
  };
  std::vector<Member> members_;
  std::vector<uint64_t> used_;
};

}  // namespace harmonics
