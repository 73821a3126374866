// Grammars (GBNF) of regular expressions.
#pragma once

#include <string>
#include <string_view>

namespace harmonics::engine {

// Returns the alternatives of a rule for the inside of a JSON string whose text contains a match of `pattern`, an
// expression of ECMAScript. ^ and $ may stand at the ends of the expression and of its alternatives. Throws
// ErrorKind::Usage with the character for wrong syntax and for assertions, references and classes \p.
std::string grammar_of_pattern(std::string_view pattern);
// Returns the alternatives of a rule for the texts that match all of such an expression.
std::string grammar_of_whole_pattern(std::string_view pattern);

}  // namespace harmonics::engine
