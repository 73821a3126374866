// Parses flows. Reports up to twenty errors at once: FlowErrors with the parts that were read, or SourceErrors if the
// input is not text.
#pragma once

#include <memory>
#include <string>

#include "engine/flow/flow.hpp"

namespace harmonics::engine {

// Syntax only: names are resolved when the graph is built.
Flow parse_flow(std::shared_ptr<const SourceText> source);
// Reads and parses a file of at most 16 MiB. Throws ErrorKind::NoInput if it cannot be read.
Flow parse_flow_file(const std::string& path);

}  // namespace harmonics::engine
