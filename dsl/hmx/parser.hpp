// The flow language's parser: grammar.peg in this folder, written by hand.
#pragma once

#include <memory>

#include "engine/runtime/flow.hpp"

namespace harmonics::hmx {

// Throws SourceErrors with up to twenty errors in the order of the text. ErrorKind::Syntax is what the grammar
// refuses and what nests too deep; Shape, Type and Name are what it cannot say (zeros, numbers out of range, a missing
// source).
Flow parse(std::shared_ptr<const SourceText> source);

}  // namespace harmonics::hmx
