// Explains a loss that is not finite: locates the first bad number and reports the state of the weights.
#pragma once

#include <string>
#include <vector>

#include "engine/bound/bound_graph.hpp"

namespace harmonics::engine {

struct NotFinite {
  BoundGraph& graph;
  const std::vector<int>& producers;
  const std::vector<const void*>& streams;  // the step's samples, by producer
  int64_t count;                            // samples in the step
  int64_t steps;                            // steps before it
  uint64_t epoch;                           // from 1
  float loss;
  std::string first_non_finite;  // name of an infinite or NaN weight; empty: none
  bool given;                    // some were so before the first step
};

// Requires that the step has changed nothing. Runs it forward again as `observing` says, checks the samples and every
// layer, and returns an ErrorKind::Diverged that names the first non-finite value. The caller adds the state of the
// weights.
Error not_finite(const NotFinite& step, const LoweringOptions& observing, Executor& executor,
                 const DeviceSettings& device);

}  // namespace harmonics::engine
