// Writes the adapters that a run trained to files.
#pragma once

#include <string>
#include <vector>

#include "engine/bound/bound_graph.hpp"

namespace harmonics::engine::cli {

// Writes the adapter of each model("...", lora="...") of the flow to `path` or, if there are several, to files in the
// folder `path` named after their parameters. Returns the paths. Throws ErrorKind::Usage if the flow trains none, and
// ErrorKind::Output.
std::vector<std::string> save_trained_adapters(BoundGraph& graph, const std::string& path);
// Throws ErrorKind::Usage if the flow trains no adapter.
void expect_trained_adapters(const BoundGraph& graph);

}  // namespace harmonics::engine::cli
