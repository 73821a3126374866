// LiveStreams: the live streams of a run: their positions in checkpoints, which samples are durable, and cancelling
// reads that wait for them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/run_state.hpp"
#include "engine/cycle/cycle_plan.hpp"

namespace harmonics::engine {

class LiveStreams {
 public:
  // The plan's streams must outlive this.
  explicit LiveStreams(CyclePlan& plan);

  bool any() const { return !members_.empty(); }
  // Called before the first sample of a run that keeps checkpoints. Starts at the beginning, or at the position in
  // `from`, which goes into `reads`, by the plan's producers. A stream without positions is not changed. Throws
  // ErrorKind::Weights if `from` lacks a stream's position.
  void begin(const RunState* from, std::vector<uint64_t>& reads);
  // Called instead by a cycle that continues another, with what restored() returned there.
  void go_on(const std::vector<char>& restored);
  std::vector<char> restored() const;

  // ---- callable from any thread ----
  // `reads` are the positions up to which steps have used samples, by the plan's producers.
  void store(RunState& state, const std::vector<uint64_t>& reads) const;
  void durable(const RunState& state) const;  // `state` is on disk
  bool wants_durable() const;
  // For each stream that has any: samples lost since this was made, which no sender still has, and samples refused
  // since its source was opened.
  struct LossCounts {
    uint64_t lost = 0, refused = 0;
    bool at_most_once = false;  // no sender would have sent them again
    std::string last_error;
  };
  std::map<std::string, LossCounts> gone() const;
  void cancel() const;

 private:
  struct Member {
    size_t number;  // index in the plan's reader
    std::string name;
    Source* source;
    std::string type;  // as announced by its source
    uint64_t lost_before;
    bool restored = false;
  };
  std::vector<Member> members_;
};

}  // namespace harmonics::engine
