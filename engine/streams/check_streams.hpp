// Checks for streams whose shapes fit the flow although their contents do not.
#pragma once

#include "engine/flow/lowering.hpp"

namespace harmonics::engine {

// Throws ErrorKind::Stream if labels and samples look swapped, or a classification loss gets real numbers. Producers
// with a declared shape are not checked.
void check_meaning(const Graph& graph, const std::map<int, StreamType>& streams);

}  // namespace harmonics::engine
