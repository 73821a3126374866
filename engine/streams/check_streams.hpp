// Streams that fit the flow's shapes by chance, but not its meaning.
#pragma once

#include "engine/flow/lowering.hpp"

namespace harmonics {

// ErrorKind::Stream when labels and samples look exchanged, or a loss of classes is given real numbers. A declared
// shape of the producer says that it is meant.
void check_meaning(const Graph& graph, const std::map<int, StreamType>& streams);

}  // namespace harmonics
