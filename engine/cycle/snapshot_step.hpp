// SnapshotStep: one compiled program that runs on any snapshot of a cycle.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine/cycle/snapshot.hpp"
#include "engine/flow/compiled_step.hpp"

namespace harmonics::engine {

// One plan, bound to a snapshot's weights before each run. On a device with a memory of its own, snapshots share its
// copies of the tensors that no program changes. Not thread-safe.
class SnapshotStep {
 public:
  // Compiles for the newest snapshot. `snapshots` and `executor` must outlive the object.
  SnapshotStep(Lowered lowered, Snapshots& snapshots, Executor& executor, const CompileOptions& options);

  // The program on this snapshot's weights. The caller holds the snapshot until it has read the results. Allocates only
  // when it meets a buffer of the snapshots for the first time.
  CompiledStep& on(const Snapshot& snapshot);
  // Of any snapshot: what does not depend on weights.
  const CompiledStep& any() const { return *step_; }

 private:
  // Where the states of the plan lie in a buffer of the snapshots; one of them is used.
  struct Place {
    std::vector<void*> addresses;
    std::vector<std::shared_ptr<DeviceTensor>> tensors;
  };
  Place place_of(size_t place);

  Snapshots& snapshots_;
  std::unique_ptr<CompiledStep> step_;
  std::array<Place, Snapshots::kPlaces> places_;
};

}  // namespace harmonics::engine
