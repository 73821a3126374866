// SnapshotStep: a compiled program that runs on any snapshot of a cycle.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine/cycle/snapshot.hpp"
#include "engine/flow/compiled_step.hpp"

namespace harmonics::engine {

// One plan, bound to the weights of a snapshot before each run. On a device with its own memory, snapshots share the
// copies of tensors that no program changes. Not thread-safe.
class SnapshotStep {
 public:
  // Compiles for the newest snapshot. `snapshots` and `executor` must outlive the object.
  SnapshotStep(Lowered lowered, Snapshots& snapshots, Executor& executor, const CompileOptions& options);

  // Binds the program to this snapshot and returns it. The caller holds the snapshot until it has read the results.
  // Allocates only on the first use of a buffer.
  CompiledStep& on(const Snapshot& snapshot);
  // Returns the program bound to any snapshot, for information that does not depend on weights.
  const CompiledStep& any() const { return *step_; }

 private:
  // The states of the plan in one buffer; only one of the two lists is used.
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
