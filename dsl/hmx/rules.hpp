// One function per rule of grammar.peg. Each parses its rule at the reader's position, or records an error and throws
// Recover.
#pragma once

#include "dsl/hmx/reader.hpp"

namespace harmonics::engine::hmx {

// Reads a declaration of this kind, after its keyword.
void read_declaration(Reader& reader, Declaration& declaration);
// Reads a flow. `flow` is marked as broken on entry. `is_first`: the first flow of a block must name its source.
void read_flow(Reader& reader, bool is_first, FlowLine& flow);
CycleCondition read_condition(Reader& reader);
std::variant<Comparison, Call> read_predicate(Reader& reader);
std::vector<Call> read_tag(Reader& reader);
Call read_call(Reader& reader);
ArgumentValue read_value(Reader& reader, const std::string& what, size_t depth = 0);
Number read_number(Reader& reader, const std::string& what);

}  // namespace harmonics::engine::hmx
