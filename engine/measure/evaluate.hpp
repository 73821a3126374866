// Evaluates loss and metrics of a cycle's taps over one pass of other data: testing after a run, validation during
// it.
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
  double loss = 0, accuracy = -1;  // mean per sample (position); accuracy -1: no layer has one
  double seconds = 0;
  std::vector<LayerFigures> layers;  // by tapped layer
  std::vector<LeftOver> left_over;   // of its streams
  bool counts = true;                // false: every position is ignored, so nothing was measured and the loss is NaN

  // Returns a figure of the first layer that has it ("f1"), or of a named one ("output.f1"); null: not measured.
  const double* find(const std::string& name) const;
  // "loss", "accuracy", "output.accuracy", ...
  std::map<std::string, double> all() const;
};

enum class Purpose { test, validation };  // for error messages

// Throws if the cycle cannot be evaluated on these streams, as far as that is known before compilation. Returns a
// note on the streams, for people; empty if there is none.
std::optional<std::string> expect_evaluable(BoundGraph& graph, int cycle, StreamSet& streams,
                                            const RunSettings& settings, Purpose purpose);

// Compiled once and run after every epoch, in evaluation mode, on the current weights.
class Evaluator {
 public:
  Evaluator(BoundGraph& graph, int cycle, StreamSet& streams, const RunSettings& settings, Purpose purpose);
  // Whether a stream is live: each run() then evaluates its next samples, at most as many as take= says. Once it has
  // ended, run() evaluates no samples.
  bool live() const { return reader_->live(); }
  // Returns nothing if `stops`, called before every batch, returned true. If a stream is live, another thread calls
  // `stops` too, and ends the streams if it returns true, so that run() does not wait for samples.
  std::optional<Evaluation> run(const std::function<bool()>& stops = {});
  void renew();  // recompiles, with functions that have changed
  // Names that run() will measure: "loss", "accuracy", "output.accuracy", ...
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
