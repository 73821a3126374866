// Reports the errors of all stages of a flow together: syntax, names, functions, settings, shapes.
#pragma once

#include <vector>

#include "engine/base/source_text.hpp"
#include "engine/flow/flow.hpp"

namespace harmonics::engine {

// Throws the first twenty errors as SourceErrors, sorted by position.
[[noreturn]] void refuse(const SourceText& source, std::vector<Error> errors, std::vector<Error> more);
// The same for a text with syntax errors. `later` are the errors of the parts that could be parsed; those at the
// position of a syntax error have the same cause and are omitted.
[[noreturn]] void refuse(const FlowErrors& syntax, std::vector<Error> later);

}  // namespace harmonics::engine
