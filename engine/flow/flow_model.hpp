// A flow as a model: what an imported file gives, a flow gives too.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "engine/flow/lowering.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

// The part of a flow that a model computes.
struct FlowPart {
  int cycle = 0;
  std::set<int> branches;   // as of LoweringOptions
  std::vector<int> wanted;  // layers and consumers whose values are results; empty: none
  uint64_t seed = 0;        // of initial weights
  ModelLimits limits;
};

// Returns a model over `store` with the entry "forward", and "loss" if taps are active. EntrySizes::batch counts
// samples; its other sizes are not used. Everything but `store` must outlive the model; tracing an entry declares
// parameters.
Model flow_model(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths,
                 std::shared_ptr<ParameterStore> store, FlowPart part);

}  // namespace harmonics::engine
