// What to say when a loss is not finite: where the first bad number is, and what became of the weights.
#pragma once

#include <vector>

#include "engine/runtime/harmonic_graph.hpp"

namespace harmonics {

struct NotFinite {
  HarmonicGraph& graph;
  const std::vector<int>& producers;
  const std::vector<const void*>& streams;  // the step's samples, by producer
  int64_t count;                            // samples in the step
  int64_t steps;                            // taken before it
  uint64_t epoch;                           // from 1
  float loss;
};

// Nothing has been changed yet: runs forward again as `observing` says, looks at the samples, the weights and every layer,
// and throws ErrorKind::Diverged naming the first that is not finite.
[[noreturn]] void report_not_finite(const NotFinite& step, const LoweringOptions& observing, Executor& executor, const DeviceSettings& device);

}  // namespace harmonics
