// Characters and words that people write by habit from other languages, and what to write instead.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "dsl/hmx/lexer.hpp"

namespace harmonics::hmx {

struct Slip {
  std::string message, remedy;
  size_t length = 0;  // bytes it covers, where that is more than one token
};

// A slip in the token here, whatever was expected instead.
std::optional<Slip> find_slip(const Lexer& lexer);
// Is this a run of arrow characters that is no arrow? Empty text: no arrow begins here at all.
Slip describe_bad_arrow(const Lexer& lexer);
// "-(relu)->" for "-relu->"; nothing when the text here is not of that form.
std::optional<Slip> find_bare_tag(const Lexer& lexer);

}  // namespace harmonics::hmx
