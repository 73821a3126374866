// Opens a graph from a file and command-line bindings, the same for every verb.
#pragma once

#include <functional>
#include <memory>

#include "engine/cli/options/options.hpp"
#include "engine/model/packed_files.hpp"

namespace harmonics::engine::cli {

// Runs `body`. Errors with a position in `source` are shown with the source line. Returns the exit code.
int with_source(const std::shared_ptr<const SourceText>& source, const std::function<int()>& body);

// Parses, resolves, binds producers, tests and consumers, loads weights. `inference` drops the training taps. `known`
// is called before any stream is opened, since opening may wait for a sender.
std::unique_ptr<BoundGraph> open_graph(const Flow& flow, const Options& options, bool inference,
                                       const std::function<void(BoundGraph&)>& known = nullptr);

// Where packed weights are kept between runs, by --packed-cache; null: nowhere.
std::shared_ptr<PackedFiles> packed_files_of(const Options& options);

// infer: throws ErrorKind::Usage if the flow has weights, nothing loads them and --untrained is not given.
void expect_trained(BoundGraph& graph, const Options& options);

// Reads the graph file options.files[0]. Syntax errors are reported together with the certain errors of names and
// shapes.
Flow read_flow(const Options& options);

}  // namespace harmonics::engine::cli
