// Typos: characters and words of other languages, and their correct form.
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

// A typo at the token here, whatever was expected.
std::optional<Typo> find_typo(const Lexer& lexer);
// Describes a run of arrow characters that is no arrow. Empty: there is none here.
Typo describe_bad_arrow(const Lexer& lexer);
// "-(relu)->" for "-relu->"; nothing if the text has another form.
std::optional<Typo> find_bare_tag(const Lexer& lexer);

}  // namespace harmonics::engine::hmx
