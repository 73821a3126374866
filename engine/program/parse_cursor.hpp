// Tokenizer for the text form of programs. Never reads past the end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/source_text.hpp"

namespace harmonics::engine {

class ParseCursor {
 public:
  explicit ParseCursor(const SourceText& source) : source_(source), text_(source.text()) {}

  bool at_end() const { return at_ == text_.size(); }
  size_t place() const { return at_; }
  // Skips spaces and tabs.
  void skip_space();
  // Skips spaces, comments and line ends, up to a non-empty line or the end.
  void skip_lines();
  // Requires a comment, the end of the line or the end of the text.
  void end_line();
  // Skips spaces and returns whether this character follows. take() also consumes it; expect() also requires it.
  bool next_is(char c);
  bool take(char c);
  void expect(char c);
  // Reads a letter, then letters, digits and '_'; returns "" if there is none.
  std::string_view word();
  // Reads digits, letters, '.', '+' and '-', the characters of numbers and words.
  std::string_view number();
  // Reads letters, digits, '_', '.', '/' and '-'.
  std::string_view path();
  // Reads a string in double quotes, with the escapes of quoted().
  std::string text();
  bool next_is_text() { return next_is('"'); }

  // Throws SourceErrors at [from, here) or at one position.
  [[noreturn]] void fail(size_t from, const std::string& what, ErrorKind kind = ErrorKind::Syntax,
                         std::vector<std::string> notes = {}) const;
  [[noreturn]] void fail_here(const std::string& what) const { fail(at_, what); }

 private:
  template <typename Accept>
  std::string_view run(Accept accept);
  std::string shown() const;

  const SourceText& source_;
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace harmonics::engine
