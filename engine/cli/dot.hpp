// A graph in Graphviz' language.
#pragma once

#include <string>

#include "engine/bound/harmonic_graph.hpp"

namespace harmonics::cli {

std::string dot_of(HarmonicGraph& graph);

}  // namespace harmonics::cli
