// Tokens of the flow language, asked for one at a time: what `-` or `<` begins depends on what may stand there.
#pragma once

#include <optional>
#include <string_view>

#include "engine/base/source_text.hpp"

namespace harmonics::hmx {

// A piece of the text; `text` points into it.
struct Token {
  size_t offset = 0;
  std::string_view text;
  size_t end() const { return offset + text.size(); }
};

bool is_identifier_character(char c);
bool is_reserved(std::string_view word);  // harmonic producer consumer layer cycle

// Stands at the beginning of a token, or at the end of the text. What is accepted moves it to the next token.
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

  // What a reader would call the token here, for messages and for skipping; empty at the end.
  Token peek() const;
  // The letters, digits and underscores here; empty when there is none.
  std::string_view peek_word() const;
  // The run of characters that arrows are made of here, a unicode arrow included.
  Token peek_arrow() const;
  void skip() { take(peek().text.size()); }

  size_t position() const { return position_; }
  // Just behind the last token accepted.
  size_t previous_end() const { return previous_end_; }
  bool touches_previous() const { return position_ == previous_end_; }
  bool on_new_line() const;  // a line ended since the last token
  std::string_view rest() const { return text_.substr(position_); }

 private:
  std::optional<Token> take(size_t length);
  void skip_spacing();
  size_t digits(size_t from) const;   // how many begin there
  size_t numeral(size_t from) const;  // length of [0-9]+ ('.' [0-9]+)?
  size_t string_length() const;       // 0: none or not terminated
  char byte(size_t offset) const { return offset < text_.size() ? text_[offset] : '\0'; }

  std::string_view text_;
  size_t position_ = 0, previous_end_ = 0;
};

}  // namespace harmonics::hmx
