// ConcurrentInference: inference during a cycle of the same graph, from snapshots of its weights, on the calling
// thread.
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

// Belongs to one run of a cycle. Callable from any thread.
class ConcurrentInference {
 public:
  ConcurrentInference(BoundGraph& graph, CycleRuntime& runtime, const RunSettings& settings)
      : graph_(graph), runtime_(runtime), settings_(settings), executor_(make_sequential_executor()) {}

  // `stacked`: whether the inputs have a batch axis; the results then have one too. Empty if the run is over.
  std::optional<std::vector<HTensor>> run(const std::map<int, HTensor>& inputs, int64_t batch, bool stacked);
  // Makes the types of the graph's streams known. Returns false if the run is over.
  bool prepare();
  // The graph has changed: programs are made anew.
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
  const std::thread::id thread_ = std::this_thread::get_id();  // the thread that began the run
  std::mutex asking_;  // not held while waiting for the end of a step: a callback there may call run() too
  std::shared_ptr<Snapshots> snapshots_;
  std::map<int64_t, Programs> programs_;  // by batch
  std::unique_ptr<Executor> executor_;
};

// Options for the values of the first cycle's results, for a batch.
LoweringOptions inference_options(const BoundGraph& graph, int64_t batch);
// Sets a step's inputs, runs it, and returns copies of its results.
std::vector<HTensor> run_inference(const BoundGraph& graph, CompiledStep& step, const std::map<int, HTensor>& inputs,
                                   bool stacked);

}  // namespace harmonics::engine
