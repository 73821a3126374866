// Lexer of the flow language, on demand: the meaning of `-` and `<` depends on the tokens allowed.
#pragma once

#include <optional>
#include <string_view>

#include "engine/base/source_text.hpp"

namespace harmonics::engine::hmx {

// A token; `text` points into the source.
struct Token {
  size_t offset = 0;
  std::string_view text;
  size_t end() const { return offset + text.size(); }
};

bool is_identifier_character(char c);
bool is_reserved(std::string_view word);  // harmonic producer consumer layer cycle

// Positioned at the start of a token or at the end. Accepting a token moves to the next one.
class Lexer {
 public:
  explicit Lexer(const SourceText& source);

  bool at_end() const { return position_ == text_.size(); }
  bool at(std::string_view literal) const { return text_.substr(position_, literal.size()) == literal; }
  bool at_word(std::string_view word) const { return peek_word() == word; }
  bool at_reserved() const { return is_reserved(peek_word()); }
  bool at_name() const;

  bool accept(std::string_view literal);
  bool accept_word(std::string_view word);
  std::optional<Token> name();      // IDENT
  std::optional<Token> integer();   // INT
  std::optional<Token> number();    // NUMBER
  std::optional<Token> string();    // STRING, with its quotes
  std::optional<Token> duration();  // DURATION

  // Returns the current token for messages and skipping; empty at the end.
  Token peek() const;
  // Returns the letters, digits and underscores at the position; may be empty.
  std::string_view peek_word() const;
  // Returns the run of arrow characters at the position, or a Unicode arrow.
  Token peek_arrow() const;
  void skip() { take(peek().text.size()); }

  size_t position() const { return position_; }
  // End of the last accepted token.
  size_t previous_end() const { return previous_end_; }
  bool touches_previous() const { return position_ == previous_end_; }
  bool on_new_line() const;  // a line ended after the last token
  std::string_view rest() const { return text_.substr(position_); }

 private:
  std::optional<Token> take(size_t length);
  void skip_spacing();
  size_t digits(size_t from) const;   // number of digits at `from`
  size_t numeral(size_t from) const;  // length of [0-9]+ ('.' [0-9]+)?
  size_t string_length() const;       // 0: no string, or unterminated
  char byte(size_t offset) const { return offset < text_.size() ? text_[offset] : '\0'; }

  std::string_view text_;
  size_t position_ = 0, previous_end_ = 0;
};

}  // namespace harmonics::engine::hmx
