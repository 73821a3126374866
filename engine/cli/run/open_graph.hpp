// Opens a graph from a file and the bindings on the command line, for all verbs.
#pragma once

#include <functional>
#include <memory>

#include "engine/cli/options/options.hpp"
#include "engine/model/packed_files.hpp"

namespace harmonics::engine::cli {

// Runs `body` and returns the exit code. Prints errors with a position in `source` with the source line. Null: the
// text is in no file, and of several errors in it only the first one is printed, without its position.
int with_source(const std::shared_ptr<const SourceText>& source, const std::function<int()>& body);

// Resolves a flow, binds producers, test data and consumers, and loads weights. `inference` removes the training taps.
// Calls `known` before opening streams, because opening may wait for a sender.
std::unique_ptr<BoundGraph> open_graph(const Flow& flow, const Options& options, bool inference,
                                       const std::function<void(BoundGraph&)>& known = nullptr);

// Resolves the flow of a run that is open, with changes of its layers. Throws GraphErrors.
Graph resolved(const Flow& flow, Registry& registry, const Options& options);

// Returns the cache of packed weights between runs, by --packed-cache; null if there is none.
std::shared_ptr<PackedFiles> packed_files_of(const Options& options);

// For infer: throws ErrorKind::Usage if the flow has weights, none are loaded and --untrained is not given.
void expect_trained(BoundGraph& graph, const Options& options);

// Reads the flow in options.files[0]. Syntax errors are reported together with definite errors of names and shapes.
Flow read_flow(const Options& options);

}  // namespace harmonics::engine::cli
