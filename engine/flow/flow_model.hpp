// Presents a flow as a Model, like an imported file.
#pragma once

#include <map>
#include <memory>

#include "engine/flow/lowering.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

// Returns a model over `store` with the entry "forward", and "loss" if the cycle has taps. EntrySizes::batch is the
// number of samples; its tokens and capacity are ignored. All arguments except `store` must outlive the model. Tracing
// an entry declares parameters.
Model flow_model(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths,
                 std::shared_ptr<ParameterStore> store, FlowPart part);

}  // namespace harmonics::engine
