// Reads lines from a terminal, with editing and a history.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::engine::cli {

// The line while it is edited: bytes from the terminal in, a line out. Uses no terminal.
class EditedLine {
 public:
  explicit EditedLine(const std::vector<std::string>& history) : history_(history), place_(history.size()) {}

  enum class State { open, done, cancelled, ended };  // cancelled: Ctrl-C; ended: Ctrl-D in an empty line
  // Takes one byte.
  State take(char byte);
  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }  // in bytes

 private:
  State key(std::string_view escape);  // "[A"
  State control(char byte);
  void insert(std::string_view bytes);
  void erase(size_t from, size_t to);
  void recall(size_t place);
  size_t left() const;   // the beginning of the character before the cursor
  size_t right() const;  // the end of the one behind it
  size_t word_left() const;

  const std::vector<std::string>& history_;
  size_t place_;       // in the history; its size: the new line
  std::string draft_;  // the new line while another is shown
  std::string text_;
  std::string pending_;  // an escape sequence, or a part of a character
  size_t cursor_ = 0;
  bool pasting_ = false;  // line ends are text
};

class LineEditor {
 public:
  // Prints the prompt to standard output and reads a line from standard input, which is a terminal. None: Ctrl-D.
  // Ctrl-C gives an empty line.
  std::optional<std::string> read(const std::string& prompt);

 private:
  std::vector<std::string> history_;
};

}  // namespace harmonics::engine::cli
