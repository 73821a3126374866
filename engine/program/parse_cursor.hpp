// Reads the tokens of a program's text; never past its end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/source_text.hpp"

namespace harmonics {

class ParseCursor {
 public:
  explicit ParseCursor(const SourceText& source) : source_(source), text_(source.text()) {}

  bool at_end() const { return at_ == text_.size(); }
  size_t place() const { return at_; }
  // Spaces and tabs.
  void skip_space();
  // Spaces, comments and line ends; then a line with something on it, or the end.
  void skip_lines();
  // A comment, the line's end or the text's must come next.
  void end_line();
  // Whether this character is next (after spaces); take() also passes it, expect() insists.
  bool next_is(char c);
  bool take(char c);
  void expect(char c);
  // Letters, digits, '_' from a letter on; empty: none here.
  std::string_view word();
  // Digits, letters, '.', '+', '-': what a number or a word may be made of.
  std::string_view number();
  // Letters, digits, '_', '.', '/' and '-'.
  std::string_view path();
  // In double quotes, with the escapes of quoted().
  std::string text();
  bool next_is_text() { return next_is('"'); }

  // Throws SourceErrors at [from, here) or at one place.
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

}  // namespace harmonics
