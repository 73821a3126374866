// LayerCards: statistics of a run's weights, gradients and activations. Computed independently of the run by two
// programs, from a snapshot and the samples of a recent batch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "engine/bound/bound_graph.hpp"
#include "engine/cycle/run_control.hpp"
#include "engine/cycle/snapshot.hpp"
#include "engine/flow/compiled_step.hpp"

namespace harmonics::engine {

class LayerCards {
 public:
  static constexpr int kParts = 32;  // bins of a histogram

  // Compiles, so it must be called on the graph's thread while nothing else uses the graph. `weights` provides the
  // current storage layout.
  LayerCards(BoundGraph& graph, int cycle, const RunSettings& run, const ParameterStore& weights);

  // Returns the object described in docs/live.md. If `sample` is null, it has no activations and gradients. Not
  // thread-safe.
  boost::json::object cards(const Snapshot& snapshot, const BatchSample* sample);
  // Returns the values of `samples` samples of a recent batch at a producer or layer. Throws ErrorKind::Usage for other
  // names.
  boost::json::object tap(const Snapshot& snapshot, const BatchSample& sample, const std::string& edge,
                          uint64_t samples);

 private:
  struct Layer {
    std::string name;
    Shape shape;
    std::vector<std::string> tensors;
    const HTensor* value = nullptr;  // null: no arrow of this cycle computes it
  };
  struct Stream {
    int node;
    std::string name;
    TensorType sample;
    size_t slot;  // index in the samples of a batch
    std::shared_ptr<Storage> staged;
  };

  void add_layers(const BoundGraph& graph, int cycle);
  void take(const Snapshot& snapshot);
  void stage(const BatchSample& sample);
  void run(CompiledStep& step);
  boost::json::object card(const Layer& layer, uint64_t samples, bool gradients) const;

  std::string graph_;
  uint64_t batch_, seed_;
  std::unique_ptr<Executor> executor_;
  ParameterStore store_;
  std::vector<Stream> streams_;
  std::vector<Layer> layers_;
  std::unique_ptr<CompiledStep> values_, gradients_;  // gradients_ is null if nothing is trained
};

}  // namespace harmonics::engine
