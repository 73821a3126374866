// Evaluates loss and metrics of a cycle's taps over one pass of other data: tests after a run, validations during it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/bound/bound_graph.hpp"
#include "engine/flow/layer_metrics.hpp"

namespace harmonics::engine {

struct Evaluation {
  int64_t samples = 0;
  double loss = 0, accuracy = -1;  // means per sample or position; accuracy -1: not measured
  double seconds = 0;
  std::vector<LayerFigures> layers;  // by tapped layer
  std::vector<LeftOver> left_over;   // remainders of the streams
  bool counts = true;                // false: all positions are ignored, so that the loss is NaN

  // Returns a figure of the first layer that has it ("f1"), or of a named layer ("output.f1"); null if not measured.
  const double* find(const std::string& name) const;
  // Returns all figures by name: "loss", "accuracy", "output.accuracy", ...
  std::map<std::string, double> all() const;
};

enum class Purpose { test, validation };  // for error messages

// Throws if the cycle cannot be evaluated on these streams, as far as this is known before compilation. Returns a
// message if the streams have unequal lengths.
std::optional<std::string> expect_evaluable(BoundGraph& graph, int cycle, StreamSet& streams,
                                            const RunSettings& settings, Purpose purpose);

// Evaluates the current weights in evaluation mode. It is compiled once and runs after every epoch.
class Evaluator {
 public:
  Evaluator(BoundGraph& graph, int cycle, StreamSet& streams, const RunSettings& settings, Purpose purpose);
  // Returns whether a stream is live: each run() then evaluates its next samples, at most as many as take= says, and
  // none once it has ended.
  bool live() const { return reader_->live(); }
  // Evaluates one pass. Calls `stops` before every batch and returns none if it returns true. If a stream is live,
  // another thread calls `stops` too and then ends the streams, so that run() does not wait for samples.
  std::optional<Evaluation> run(const std::function<bool()>& stops = {});
  void renew();  // recompiles after functions have changed
  // Returns the names of the figures that run() measures: "loss", "accuracy", "output.accuracy", ...
  std::vector<std::string> names();

 private:
  struct Step {
    std::unique_ptr<CompiledStep> step;
    MetricAddresses outputs;
  };
  void first();
  Step& compiled(uint64_t batch);

  BoundGraph& graph_;
  RunSettings run_;
  ResolvedSettings settings_;
  int cycle_;
  std::unique_ptr<JointReader> reader_;
  uint64_t most_ = 0;
  std::vector<std::shared_ptr<Storage>> buffers_;
  std::vector<void*> targets_;
  std::map<uint64_t, Step> steps_;  // by batch size
  std::optional<LayerMetrics> layer_metrics_;
};

Evaluation evaluate(BoundGraph& graph, int cycle, StreamSet& streams, const RunSettings& settings,
                    Purpose purpose = Purpose::test);

}  // namespace harmonics::engine
