// CycleHooks: everything outside a run of a cycle that takes part in it: callbacks, the clock, requests from other
// threads, checkpoints. CycleRuntime fills in the hooks, and the run reads them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint_folder.hpp"
#include "engine/cycle/last_good.hpp"
#include "engine/measure/cycle_report.hpp"

namespace harmonics::engine {

class Checkpointer;
class RunControl;
class Snapshots;

struct CycleHooks {
  // ---- callbacks; empty for none ----
  std::function<void(const Progress&)> progress;
  std::function<void(const EpochReport&, const Progress&)> epoch;
  // Receives the names of the metrics and the point where the run continues.
  std::function<void(const std::vector<std::string>&, const Beginning&)> start;
  std::function<void(const StepReport&)> step;
  int64_t every = 0;  // steps between two calls of `step`; 0 for none
  std::function<void(const StepReport&)> pause;
  int64_t pause_every = 0;  // steps between two calls of `pause`
  std::function<void(const RunEvent&)> event;
  std::function<void(const std::string&)> note;                      // if empty, notes go into the report
  std::function<void(const std::shared_ptr<Snapshots>&)> snapshots;  // called when weights for readers are ready
  std::function<double()> clock;                                     // monotonic, in seconds

  // ---- requests, from any thread ----
  std::atomic<bool> stop{false}, reload{false};

  Checkpointer* checkpoints = nullptr;  // null: no checkpoints are written
  RunControl* control = nullptr;        // null for none

  std::optional<Checkpoint> resume;       // until the run takes it
  std::vector<std::string> resume_notes;  // differences between the streams of the checkpoint and the current ones
  std::string origin = "the graph";       // origin of the weights, for messages; set by a run that resumes
  std::unique_ptr<LastGood> good;         // set by a run that trains; outlives it, to restore the weights
  std::mutex good_access;                 // held to set, reset or renew `good`, and by other threads that read it
  bool good_is_last = false;              // a validation runs and `good` is of the last step; guarded by good_access
  // Repeats the steps of a failed run up to this one and checks all numbers after each.
  std::optional<int64_t> repeats_until;
};

}  // namespace harmonics::engine
