// Tokens of chat templates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <harmonics/error.hpp>

namespace harmonics::engine::jinja {

enum class TokenKind { data, begin_output, end_output, begin_block, end_block, name, text, integer, real, sign, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  // of a text: without quotes and escapes
  Span at;
};

// Divides a template into tokens. White space around blocks is removed as trim_blocks and lstrip_blocks of Jinja do,
// which templates of models are written for. Throws ErrorKind::Syntax.
std::vector<Token> tokens_of_template(std::string_view text, const std::string& name);

// The error at a place of a template.
Error template_error(ErrorKind kind, const std::string& name, Span at, const std::string& what);

}  // namespace harmonics::engine::jinja
