// FitCheckpoints: the checkpoints of one fit(): where it writes them, and the one it resumes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <harmonics/graph_abi.h>

#include "engine/checkpoint/checkpointer.hpp"
#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine {

class FitCheckpoints {
 public:
  // Locks the checkpoint folder and reads the checkpoint to resume.
  FitCheckpoints(const hx_fit_settings& settings, const BoundGraph& graph);

  // Returns whether this cycle was complete when the checkpoint was written.
  bool over(int cycle) const { return from_ && cycle < from_->state.cycle; }
  // Makes a training cycle that is not complete resume and write checkpoints.
  void attach(CycleRuntime& runtime);
  // Returns the path of the newest checkpoint, or "" if there is none.
  std::string newest() const { return writer_ ? writer_->last() : ""; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void read(const std::string& path, const std::string& folder);
  void expect_training(const BoundGraph& graph) const;

  std::optional<Checkpoint> from_;
  std::optional<Checkpointer> writer_;
  std::vector<std::string> notes_;
};

}  // namespace harmonics::engine
