// SnapshotStep: one compiled program that runs on any snapshot of a cycle.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine/cycle/snapshot.hpp"
#include "engine/flow/compiled_step.hpp"

namespace harmonics::engine {

// In host memory there is one plan, bound to a snapshot's weights before each run; on a device with a memory of its own
// there is one for every buffer of the snapshots in use. Not thread-safe.
class SnapshotStep {
 public:
  // Compiles for the newest snapshot. `snapshots` and `executor` must outlive the object.
  SnapshotStep(Lowered lowered, Snapshots& snapshots, Executor& executor, CompileOptions options);

  // The program on this snapshot's weights. The caller holds the snapshot until it has read the results. Allocates only
  // when it meets a buffer of the snapshots for the first time.
  CompiledStep& on(const Snapshot& snapshot);
  // Of any snapshot: what does not depend on weights.
  const CompiledStep& any() const { return *first_; }

 private:
  CompiledStep& compiled(size_t place);

  Lowered lowered_;
  Snapshots& snapshots_;
  Executor& executor_;
  const CompileOptions options_;
  const bool own_memory_;
  std::array<std::unique_ptr<CompiledStep>, Snapshots::kPlaces> steps_;  // by place
  CompiledStep* first_ = nullptr;
  std::array<std::vector<void*>, Snapshots::kPlaces> addresses_;  // of the plan's states, by place
};

}  // namespace harmonics::engine
