// Lexer of chat templates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <harmonics/error.hpp>

namespace harmonics::engine::jinja {

enum class TokenKind { data, begin_output, end_output, begin_block, end_block, name, text, integer, real, sign, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  // for strings: without quotes and escapes
  Span at;
};

// Splits a template into tokens. Removes white space around blocks like trim_blocks and lstrip_blocks of Jinja, for
// which chat templates are written. Throws ErrorKind::Syntax.
std::vector<Token> tokens_of_template(std::string_view text, const std::string& name);

// Returns an error with its location in a template.
Error template_error(ErrorKind kind, const std::string& name, Span at, const std::string& what);

}  // namespace harmonics::engine::jinja
