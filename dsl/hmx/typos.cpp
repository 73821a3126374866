#include "dsl/hmx/typos.hpp"

#include <cstdio>

#include "formats/utf8.hpp"

namespace harmonics::engine::hmx {

namespace {

bool in(char32_t value, char32_t first, char32_t last) { return value >= first && value <= last; }

std::string hex(char32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "U+%04X", static_cast<unsigned>(value));
  return text;
}

std::optional<Typo> unicode_typo(const Lexer& lexer) {
  const CodePoint point = decode_utf8(lexer.rest(), 0);
  const char32_t c = point.value;
  const std::string shown = "'" + std::string(lexer.rest().substr(0, point.length)) + "'";
  if (c == 0xA0 || in(c, 0x2000, 0x200D) || c == 0x202F || c == 0x3000 || c == 0xFEFF) {
    return Typo{"a space that is not an ordinary one (" + hex(c) + ")", "replace it by an ordinary space"};
  }
  if (in(c, 0x2018, 0x201F) || c == 0xAB || c == 0xBB) return Typo{"curly quote " + shown, "write '\"'"};
  if (in(c, 0x2010, 0x2015) || c == 0x2212) return Typo{"dash " + shown + " (" + hex(c) + ")", "write '-'"};
  if (in(c, 0xFF01, 0xFF5E)) {
    const std::string plain(1, static_cast<char>(c - 0xFEE0));
    return Typo{"full-width character " + shown, "write '" + plain + "'"};
  }
  if (!lexer.peek_arrow().text.empty()) return describe_bad_arrow(lexer);
  const std::string what = is_unprintable(c) ? hex(c) : shown + " (" + hex(c) + ")";
  return Typo{"unexpected character " + what, "names consist of the letters A-Z and a-z, digits and '_'"};
}

}  // namespace

std::optional<Typo> find_typo(const Lexer& lexer) {
  if (lexer.at_end()) return std::nullopt;
  if (lexer.at("/*")) return Typo{"'/*' begins no comment", "a comment begins with '//' or '#' and ends with the line"};
  if (lexer.at("'")) return Typo{"a single quote begins no string", "write strings in double quotes"};
  if (lexer.at("\"") && (lexer.peek().text.size() < 2 || lexer.peek().text.back() != '"')) {
    return Typo{"unterminated string", "close it with '\"' on the same line"};
  }
  if (static_cast<unsigned char>(lexer.rest().front()) >= 0x80) return unicode_typo(lexer);
  return std::nullopt;
}

Typo describe_bad_arrow(const Lexer& lexer) {
  const std::string run(lexer.peek_arrow().text);
  const std::string message = "'" + run + "' is not an arrow";
  const bool unicode = static_cast<unsigned char>(run.front()) >= 0x80;
  const char32_t c = unicode ? decode_utf8(run, 0).value : 0;
  const bool right =
      unicode ? !(c == 0x2190 || c == 0x21D0 || c == 0x27F5 || c == 0x27F8) : run.find('>') != std::string::npos;
  const bool left = unicode ? !right : run.front() == '<';
  if (left && right) return {message, "an arrow has one direction: write '->', or '<-' for a training tap"};
  if (lexer.rest().substr(run.size(), 1) == "(") {
    return {message, left ? "write a tap as '<-(loss)-'" : "write an arrow with functions as '-(relu)->'"};
  }
  if (run == "=") return {"'=' assigns nothing in a flow", "write a flow with an arrow, for example 'a -> b;'"};
  return {message, left ? "write '<-'" : "write '->'"};
}

std::optional<Typo> find_bare_tag(const Lexer& lexer) {
  const std::string_view rest = lexer.rest();
  const size_t begin = rest.substr(0, 2) == "<-" ? 2 : 1;
  if (begin == 1 && !lexer.at("-")) return std::nullopt;
  size_t end = begin;
  while (end < rest.size() && is_identifier_character(rest[end])) ++end;
  if (end == begin) return std::nullopt;
  const std::string name(rest.substr(begin, end - begin));
  if (begin == 1 && rest.substr(end, 2) == "->") {
    return Typo{"'-" + name + "->' is not an arrow", "write '-(" + name + ")->'", end + 2};
  }
  const std::string_view after = rest.substr(end, 2);
  if (begin == 2 && after.substr(0, 1) == "-" && after != "->" && after != "-(") {
    return Typo{"'<-" + name + "-' is not an arrow", "write '<-(" + name + ")-'", end + 1};
  }
  return std::nullopt;
}

}  // namespace harmonics::engine::hmx
