// Compares the weights of a graph with those of the same flow with other arguments.
#pragma once

#include "engine/bound/bound_graph.hpp"

namespace harmonics::engine {

// Throws ErrorKind::Shape if a cycle of `next` has other weights, or results of another type, than that of `graph`;
// errors of widths otherwise. Changes neither graph nor weights.
void expect_same_weights(BoundGraph& graph, const Graph& next, const RunSettings& run);

}  // namespace harmonics::engine
