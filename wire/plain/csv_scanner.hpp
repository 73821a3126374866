// Splits CSV text into rows and cells (RFC 4180: quotes, doubled quotes, line ends inside quotes), without interpreting
// cells.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics {

// Returns the most frequent of comma, tab, semicolon and bar outside quotes in the first line that is not blank.
char most_frequent_delimiter(std::string_view text);

class CsvScanner {
 public:
  // `name` appears in errors. Skips a byte order mark at the beginning.
  CsvScanner(const std::string& name, std::string_view text, char delimiter);

  // Reads the cells of the next row; false at the end. Skips lines of nothing but blanks that are not delimiters. The
  // cells stay valid until the next call.
  bool next(std::vector<std::string_view>& cells);
  // Moves to another offset, which must be the start of a row.
  void go_to(size_t at, size_t line) { at_ = at, line_ = line; }
  size_t at() const { return at_; }
  size_t next_line() const { return line_; }
  // Line where the last row began, counted from 1.
  size_t line() const { return row_line_; }

 private:
  std::string_view cell();
  std::string_view quoted_cell();
  std::string_view plain_cell();
  bool at_row_end() const { return at_ == text_.size() || text_[at_] == '\n' || text_[at_] == '\r'; }
  void pass_blank_lines();
  void pass_line_end();
  [[noreturn]] void fail(size_t line, const std::string& what, const std::string& remedy) const;

  const std::string& name_;
  std::string_view text_;
  char delimiter_;
  size_t at_ = 0, line_ = 1, row_line_ = 1;
  std::deque<std::string> unescaped_;  // cells with doubled quotes
};

}  // namespace harmonics
