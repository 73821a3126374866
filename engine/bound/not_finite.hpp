// What to say when a loss is not finite: where the first bad number is, and what became of the weights.
#pragma once

#include <string>
#include <vector>

#include "engine/bound/harmonic_graph.hpp"

namespace harmonics {

struct NotFinite {
  HarmonicGraph& graph;
  const std::vector<int>& producers;
  const std::vector<const void*>& streams;  // the step's samples, by producer
  int64_t count;                            // samples in the step
  int64_t steps;                            // taken before it
  uint64_t epoch;                           // from 1
  float loss;
  std::string spoilt;  // a weight that has become infinite or NaN; empty: none has
  bool given;          // some were so before the first step
};

// The step has changed nothing: runs forward again as `observing` says, looks at the samples and every layer, and gives
// the ErrorKind::Diverged that names the first that is not finite. What became of the weights is for the caller to say.
Error not_finite(const NotFinite& step, const LoweringOptions& observing, Executor& executor,
                 const DeviceSettings& device);

}  // namespace harmonics
