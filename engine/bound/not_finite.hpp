// Explains a loss that is not finite by locating the first value that is not finite.
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
  bool given;                    // some weights were not finite before the first step
};

// Repeats the forward pass of the step with the options `observing`, checks the samples and every layer, and returns an
// ErrorKind::Diverged that names the first non-finite value. The step must not have changed any state. The caller adds
// the state of the weights.
Error not_finite(const NotFinite& step, const LoweringOptions& observing, Executor& executor,
                 const DeviceSettings& device);

}  // namespace harmonics::engine
