// Formats a graph in the DOT language of Graphviz.
#pragma once

#include <string>

#include "engine/bound/bound_graph.hpp"

namespace harmonics::engine::cli {

std::string dot_of(BoundGraph& graph);

}  // namespace harmonics::engine::cli
