// Recognizes typos, and characters and words of other languages, and suggests the correct form.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "dsl/hmx/lexer.hpp"

namespace harmonics::engine::hmx {

struct Typo {
  std::string message, remedy;
  size_t length = 0;  // bytes, if more than one token
};

// Returns a typo at the current token, whatever was expected.
std::optional<Typo> find_typo(const Lexer& lexer);
// Describes a run of arrow characters that is not an arrow. Empty: there is none.
Typo describe_bad_arrow(const Lexer& lexer);
// Suggests "-(relu)->" for "-relu->"; nothing if the text has another form.
std::optional<Typo> find_bare_tag(const Lexer& lexer);

}  // namespace harmonics::engine::hmx
