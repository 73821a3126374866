// Hand-written parser of the flow language, as specified in grammar.peg.
#pragma once

#include <memory>

#include "engine/flow/flow.hpp"

namespace harmonics::engine::hmx {

// Throws FlowErrors with up to twenty errors in text order, or SourceErrors if the text is not UTF-8 or contains NUL
// bytes. ErrorKind::Syntax: rejected by the grammar, or nested too deeply; Shape, Type and Name: rules beyond the
// grammar (zeros, numbers out of range, a missing source).
Flow parse(std::shared_ptr<const SourceText> source);

}  // namespace harmonics::engine::hmx
