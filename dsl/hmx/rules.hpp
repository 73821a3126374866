// One function per rule of grammar.peg. Each reads what it is named after from the reader's place, or notes an error
// and throws Recover.
#pragma once

#include "dsl/hmx/reader.hpp"

namespace harmonics::hmx {

// `keyword` has been read already.
Declaration read_declaration(Reader& reader, DeclarationKind kind);
// `is_first`: no flow stands before it in the same braces, so it has to name its source.
FlowLine read_flow(Reader& reader, bool is_first);
CycleCondition read_condition(Reader& reader);
std::variant<Comparison, Call> read_predicate(Reader& reader);
std::vector<Call> read_tag(Reader& reader);
Call read_call(Reader& reader);
ArgumentValue read_value(Reader& reader, const std::string& what, size_t depth = 0);
Number read_number(Reader& reader, const std::string& what);

}  // namespace harmonics::hmx
