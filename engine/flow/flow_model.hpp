// A flow as a model: what an imported file gives, a flow gives too.
#pragma once

#include <map>
#include <memory>

#include "engine/flow/lowering.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

// Returns a model over `store` with the entry "forward", and "loss" if the cycle has taps. EntrySizes::batch counts
// samples; its tokens and capacity are not used. Everything but `store` must outlive the model; tracing an entry
// declares parameters.
Model flow_model(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths,
                 std::shared_ptr<ParameterStore> store, FlowPart part);

}  // namespace harmonics::engine
