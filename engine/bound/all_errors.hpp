// Errors of all stages of a flow in one report: syntax, names, functions, settings, shapes.
#pragma once

#include <vector>

#include "engine/base/source_text.hpp"
#include "engine/flow/flow.hpp"

namespace harmonics::engine {

// Throws all errors as SourceErrors in order of the text, or the first twenty.
[[noreturn]] void refuse(const SourceText& source, std::vector<Error> errors, std::vector<Error> more);
// The same for a text with syntax errors. `later`: errors of what could be read; one at the place of a syntax error has
// the same cause and is left out.
[[noreturn]] void refuse(const FlowErrors& syntax, std::vector<Error> later);

}  // namespace harmonics::engine
