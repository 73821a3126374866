// InferenceBeside: answers while a cycle of the same graph runs, from snapshots of its weights, on the asking thread.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/cycle/cycle_runtime.hpp"
#include "engine/cycle/snapshot.hpp"
#include "engine/flow/compiled_step.hpp"

namespace harmonics {

// Of one run of a cycle. Any thread.
class InferenceBeside {
 public:
  InferenceBeside(HarmonicGraph& graph, CycleRuntime& runtime, const RunSettings& settings)
      : graph_(graph), runtime_(runtime), settings_(settings), executor_(make_sequential_executor()) {}

  // `stacked`: whether the inputs have a batch axis, which the results have then too. Empty: the run is over.
  std::optional<std::vector<HTensor>> run(const std::map<int, HTensor>& inputs, int64_t batch, bool stacked);
  // What the graph's streams deliver is known from then on. False: the run is over.
  bool prepare();

 private:
  struct Programs {
    Lowered lowered;
    std::array<std::unique_ptr<CompiledStep>, Snapshots::kPlaces> at;  // where a snapshot may lie
  };
  std::shared_ptr<Snapshots> lowered_for(int64_t batch);

  HarmonicGraph& graph_;
  CycleRuntime& runtime_;
  const RunSettings settings_;
  const std::thread::id thread_ = std::this_thread::get_id();  // on which the run was begun
  std::mutex asking_;  // not held while waiting for the end of a step: a callback there may call run() too
  std::shared_ptr<Snapshots> snapshots_;
  std::map<int64_t, Programs> programs_;  // by batch
  std::unique_ptr<Executor> executor_;
};

// The values of the first cycle's results, for a batch.
LoweringOptions inference_options(const HarmonicGraph& graph, int64_t batch);
// A step's inputs set, it run, and copies of its results.
std::vector<HTensor> run_inference(const HarmonicGraph& graph, CompiledStep& step, const std::map<int, HTensor>& inputs,
                                   bool stacked);

}  // namespace harmonics
