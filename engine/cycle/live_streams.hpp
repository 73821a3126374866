// LiveStreams: the live streams of a run. Stores their positions in checkpoints, reports durable samples to them, and
// cancels reads that wait for samples.
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
  // Starts the streams before the first sample of a run that writes checkpoints: at the beginning, or at the position
  // in `from`, which is also written to `reads` (by producer of the plan). Streams without positions are left alone.
  // Throws ErrorKind::Weights if `from` lacks the position of a stream.
  void begin(const RunState* from, std::vector<uint64_t>& reads);
  // Replaces begin() in a cycle that continues another one; `restored` is what restored() returned there.
  void go_on(const std::vector<char>& restored);
  std::vector<char> restored() const;

  // ---- callable from any thread ----
  // `reads`: by producer of the plan, the position up to which steps have used samples.
  void store(RunState& state, const std::vector<uint64_t>& reads) const;
  void durable(const RunState& state) const;  // `state` is on disk
  bool wants_durable() const;
  // Counts per stream that has any: samples lost since construction, which no sender can send again, and samples
  // refused since the source was opened.
  struct LossCounts {
    uint64_t lost = 0, refused = 0;
    bool at_most_once = false;  // senders could never have resent them
    std::string last_error;
  };
  std::map<std::string, LossCounts> gone() const;
  void cancel() const;

 private:
  struct Member {
    size_t number;  // index of the stream in the reader
    std::string name;
    Source* source;
    std::string type;  // as announced by the source
    uint64_t lost_before;
    bool restored = false;
  };
  std::vector<Member> members_;
};

}  // namespace harmonics::engine
