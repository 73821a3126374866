// Text to plain data. The parser reports up to twenty errors at once (SourceErrors).
#pragma once

#include <memory>
#include <string>

#include "engine/runtime/flow.hpp"

namespace harmonics {

// Syntax only: names are resolved when the graph is made.
Flow parse_flow(std::shared_ptr<const SourceText> source);
// Reads the file (bounded to 16 MiB) and parses it; ErrorKind::NoInput when it cannot be read.
Flow parse_flow_file(const std::string& path);

}  // namespace harmonics
