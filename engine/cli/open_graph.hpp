// From a file and bindings on the command line to a graph, the same for every verb.
#pragma once

#include <functional>
#include <memory>

#include "engine/cli/options.hpp"

namespace harmonics::cli {

// Runs `body`; errors with a place in `source` are shown in it. Returns the exit code.
int with_source(const std::shared_ptr<const SourceText>& source, const std::function<int()>& body);

// Parses, resolves, binds producers, tests and consumers, loads weights. `inference` drops the training taps. `known`:
// called before any stream is opened, which may wait for a sender.
std::unique_ptr<HarmonicGraph> open_graph(const Flow& flow, const Options& options, bool inference,
                                          const std::function<void(HarmonicGraph&)>& known = nullptr);

// infer: ErrorKind::Usage where the flow has weights and nothing gives them, unless --untrained says that it is meant.
void expect_trained(HarmonicGraph& graph, const Options& options);

// The schemes a flow's file and the built-in addresses resolve against: graph file of options.files[0].
Flow read_flow(const Options& options);
// Mistakes of the language and unknown functions are thrown together.
Flow read_flow_file(const std::string& path);

}  // namespace harmonics::cli
