// LayerCards: what weights, gradients and activations of a run look like, computed aside from it: a copy of a snapshot,
// the samples of a late batch, two programs that no step of the run is touched by.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "engine/bound/harmonic_graph.hpp"
#include "engine/cycle/run_control.hpp"
#include "engine/cycle/snapshot.hpp"
#include "engine/flow/compiled_step.hpp"

namespace harmonics {

class LayerCards {
 public:
  static constexpr int kParts = 32;  // of a histogram

  // Compiles, so on the thread the graph belongs to, while nothing else does. With `weights` as they lie.
  LayerCards(HarmonicGraph& graph, int cycle, const RunSettings& run, const ParameterStore& weights);

  // One object of docs/live.md: `sample` may be null, then there are no activations and gradients. One thread at a
  // time.
  boost::json::object cards(const Snapshot& snapshot, const BatchSample* sample);
  // What `samples` of a late batch are at a producer or a layer; ErrorKind::Usage for other names.
  boost::json::object tap(const Snapshot& snapshot, const BatchSample& sample, const std::string& edge,
                          uint64_t samples);

 private:
  struct Layer {
    std::string name;
    Shape shape;
    std::vector<std::string> tensors;
    const HTensor* value = nullptr;  // null: no arrow of this cycle drives it
  };
  struct Stream {
    int node;
    std::string name;
    TensorType sample;
    size_t slot;  // in the samples of a batch
    std::shared_ptr<Storage> staged;
  };

  void add_layers(const HarmonicGraph& graph, int cycle);
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
  std::unique_ptr<CompiledStep> values_, gradients_;  // the latter null where nothing learns
};

}  // namespace harmonics
