// ConcurrentInference: inference on the calling thread while a cycle of the same graph runs, from snapshots of its
// weights.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/cycle/cycle_runtime.hpp"
#include "engine/cycle/snapshot_step.hpp"

namespace harmonics::engine {

// Belongs to one run of a cycle. Thread-safe.
class ConcurrentInference {
 public:
  ConcurrentInference(BoundGraph& graph, CycleRuntime& runtime, const RunSettings& settings)
      : graph_(graph), runtime_(runtime), settings_(settings), executor_(make_sequential_executor()) {}

  // Runs the graph for inputs by producer. `stacked`: the inputs have a batch axis, and so do the results. Returns
  // nothing if the run is over.
  std::optional<std::vector<HTensor>> run(const std::map<int, HTensor>& inputs, int64_t batch, bool stacked);
  // Determines the types of the graph's streams. Returns false if the run is over.
  bool prepare();
  // Drops the programs after the graph has changed.
  void forget();

 private:
  struct Programs {
    Lowered lowered;
    std::unique_ptr<SnapshotStep> step = nullptr;  // compiled by the first run
  };
  std::shared_ptr<Snapshots> lowered_for(int64_t batch);

  BoundGraph& graph_;
  CycleRuntime& runtime_;
  const RunSettings settings_;
  const std::thread::id thread_ = std::this_thread::get_id();  // the thread that created this object and runs the cycle
  std::mutex asking_;  // not held while waiting for the end of a step, as a callback may call run() there
  std::shared_ptr<Snapshots> snapshots_;
  std::map<int64_t, Programs> programs_;  // by batch
  std::unique_ptr<Executor> executor_;
};

// Returns the options to compute the results of the first cycle for a batch.
LoweringOptions inference_options(const BoundGraph& graph, int64_t batch);
// Sets the inputs of `step`, runs it, and returns copies of its results.
std::vector<HTensor> run_inference(const BoundGraph& graph, CompiledStep& step, const std::map<int, HTensor>& inputs,
                                   bool stacked);

}  // namespace harmonics::engine
