// Checks for streams that match the flow's shapes by chance but not its meaning.
#pragma once

#include "engine/flow/lowering.hpp"

namespace harmonics::engine {

// Throws ErrorKind::Stream when labels and samples look exchanged, or a classification loss gets real numbers. A
// producer with a declared shape is not checked.
void check_meaning(const Graph& graph, const std::map<int, StreamType>& streams);

}  // namespace harmonics::engine
