// Reads lines from a terminal, with editing and a history.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::engine::cli {

// The state of an edited line: takes bytes from a terminal and gives a line. Does not access the terminal.
class EditedLine {
 public:
  explicit EditedLine(const std::vector<std::string>& history) : history_(history), place_(history.size()) {}

  enum class State { open, done, cancelled, ended };  // cancelled: Ctrl-C; ended: Ctrl-D on an empty line
  // Takes one byte.
  State take(char byte);
  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }  // in bytes

 private:
  State key(std::string_view escape);  // handles an escape sequence such as "[A"
  State control(char byte);
  void insert(std::string_view bytes);
  void erase(size_t from, size_t to);
  void recall(size_t place);
  size_t left() const;   // start of the character before the cursor
  size_t right() const;  // end of the character after the cursor
  size_t word_left() const;

  const std::vector<std::string>& history_;
  size_t place_;       // index in the history; its size: the new line
  std::string draft_;  // the new line while one of the history is shown
  std::string text_;
  std::string pending_;  // incomplete escape sequence or character
  size_t cursor_ = 0;
  bool pasting_ = false;  // within pasted text, where line breaks are text
};

class LineEditor {
 public:
  // Prints the prompt to standard output and reads a line from standard input, which must be a terminal. Returns none
  // for Ctrl-D and an empty line for Ctrl-C.
  std::optional<std::string> read(const std::string& prompt);

 private:
  std::vector<std::string> history_;
};

}  // namespace harmonics::engine::cli
