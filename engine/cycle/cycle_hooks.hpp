// CycleHooks: everything outside a run of a cycle that takes part in it: callbacks, the clock, requests of other
// threads, checkpoints. CycleRuntime fills them in; the run reads them.
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
  // ---- callbacks; empty: none ----
  std::function<void(const Progress&)> progress;
  std::function<void(const EpochReport&, const Progress&)> epoch;
  // Names of the metrics, and the point where the run continues.
  std::function<void(const std::vector<std::string>&, const Beginning&)> start;
  std::function<void(const StepReport&)> step;
  int64_t every = 0;  // steps between two calls of `step`; 0: none
  std::function<void(const StepReport&)> pause;
  int64_t pause_every = 0;  // steps between two calls of `pause`
  std::function<void(const RunEvent&)> event;
  std::function<void(const std::string&)> note;                      // empty: notes go into the report
  std::function<void(const std::shared_ptr<Snapshots>&)> snapshots;  // weights for readers are ready
  std::function<double()> clock;                                     // monotonic, in seconds

  // ---- requests, from any thread ----
  std::atomic<bool> stop{false}, reload{false};

  Checkpointer* checkpoints = nullptr;  // null: none are written
  RunControl* control = nullptr;        // null: none

  std::optional<Checkpoint> resume;       // until the run has taken it
  std::vector<std::string> resume_notes;  // differences between its streams and the current ones
  std::string origin = "the graph";       // where the weights came from, for messages; set by a run that resumes
  std::unique_ptr<LastGood> good;         // set by a run that trains; outlives it, to restore the weights
  std::mutex good_access;                 // held to set, reset or renew `good`, and by other threads that read it
  bool good_is_last = false;              // a validation runs, and `good` is of the last step; guarded by good_access
  // Repeats the steps of a failed run up to this one and checks every number after each.
  std::optional<int64_t> repeats_until;
};

}  // namespace harmonics::engine
