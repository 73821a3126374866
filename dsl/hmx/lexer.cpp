#include "dsl/hmx/lexer.hpp"

#include <algorithm>

#include "formats/utf8.hpp"

namespace harmonics::engine::hmx {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kArrowCharacters = "-=<>~";
constexpr std::string_view kArrowTokens[] = {"<-(", ")->", "-(", ")-", "->", "<-", "<=", ">=", "==", "!=", "&&", "||"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_unicode_arrow(char32_t c) { return (c >= 0x2190 && c <= 0x21FF) || (c >= 0x27F0 && c <= 0x27FF); }

}  // namespace

bool is_identifier_character(char c) { return is_letter(c) || is_digit(c); }

bool is_reserved(std::string_view word) {
  return word == "harmonic" || word == "producer" || word == "consumer" || word == "layer" || word == "cycle";
}

Lexer::Lexer(const SourceText& source) : text_(source.text()) {
  if (text_.substr(0, kByteOrderMark.size()) == kByteOrderMark) position_ = kByteOrderMark.size();
  previous_end_ = position_;
  skip_spacing();
}

void Lexer::skip_spacing() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      ++position_;
    } else if (c == '#' || (c == '/' && byte(position_ + 1) == '/')) {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else {
      return;
    }
  }
}

std::optional<Token> Lexer::take(size_t length) {
  const Token token{position_, text_.substr(position_, length)};
  position_ += token.text.size();
  previous_end_ = position_;
  skip_spacing();
  return token;
}

std::string_view Lexer::peek_word() const {
  size_t end = position_;
  while (is_identifier_character(byte(end))) ++end;
  return text_.substr(position_, end - position_);
}

bool Lexer::at_name() const { return is_letter(byte(position_)) && !at_reserved(); }

bool Lexer::accept(std::string_view literal) { return at(literal) && take(literal.size()); }

bool Lexer::accept_word(std::string_view word) { return at_word(word) && take(word.size()); }

std::optional<Token> Lexer::name() {
  if (!at_name()) return std::nullopt;
  return take(peek_word().size());
}

size_t Lexer::digits(size_t from) const {
  size_t end = from;
  while (is_digit(byte(end))) ++end;
  return end - from;
}

size_t Lexer::numeral(size_t from) const {
  const size_t whole = digits(from);
  if (whole == 0 || byte(from + whole) != '.') return whole;
  const size_t fraction = digits(from + whole + 1);
  return fraction == 0 ? whole : whole + 1 + fraction;
}

std::optional<Token> Lexer::integer() {
  const size_t length = digits(position_);
  if (length == 0) return std::nullopt;
  return take(length);
}

std::optional<Token> Lexer::number() {
  const size_t sign = byte(position_) == '+' || byte(position_) == '-' ? 1 : 0;
  size_t length = numeral(position_ + sign);
  if (length == 0) return std::nullopt;
  length += sign;
  if (byte(position_ + length) == 'e' || byte(position_ + length) == 'E') {
    const char after = byte(position_ + length + 1);
    const size_t marks = after == '+' || after == '-' ? 2 : 1;
    const size_t exponent = digits(position_ + length + marks);
    if (exponent > 0) length += marks + exponent;
  }
  return take(length);
}

std::optional<Token> Lexer::duration() {
  size_t length = numeral(position_);
  if (length == 0) return std::nullopt;
  if (text_.substr(position_ + length, 2) == "ms") {
    length += 2;
  } else if (std::string_view("smhd").find(byte(position_ + length)) != std::string_view::npos) {
    length += 1;
  } else {
    return std::nullopt;
  }
  if (is_identifier_character(byte(position_ + length))) return std::nullopt;
  return take(length);
}

size_t Lexer::string_length() const {
  if (byte(position_) != '"') return 0;
  for (size_t at = position_ + 1; at < text_.size() && text_[at] != '\n'; ++at) {
    if (text_[at] == '"') return at + 1 - position_;
    if (text_[at] == '\\') ++at;
  }
  return 0;
}

std::optional<Token> Lexer::string() {
  const size_t length = string_length();
  if (length == 0) return std::nullopt;
  return take(length);
}

Token Lexer::peek_arrow() const {
  if (at_end()) return {position_, {}};
  const CodePoint point = decode_utf8(text_, position_);
  if (is_unicode_arrow(point.value)) return {position_, text_.substr(position_, point.length)};
  const size_t end = std::min(text_.find_first_not_of(kArrowCharacters, position_), text_.size());
  return {position_, text_.substr(position_, end - position_)};
}

Token Lexer::peek() const {
  if (at_end()) return {position_, {}};
  size_t length = std::max({peek_word().size(), numeral(position_), string_length()});
  if (length == 0 && at("\"")) {  // unterminated: the rest of the line
    length = std::min(text_.find_first_of("\r\n", position_), text_.size()) - position_;
  }
  for (const std::string_view token : kArrowTokens) {
    if (length == 0 && at(token)) length = token.size();
  }
  if (length == 0) length = peek_arrow().text.size();
  if (length == 0) length = decode_utf8(text_, position_).length;
  return {position_, text_.substr(position_, length)};
}

bool Lexer::on_new_line() const {
  return text_.substr(previous_end_, position_ - previous_end_).find('\n') != std::string_view::npos;
}

}  // namespace harmonics::engine::hmx
