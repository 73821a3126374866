#include "engine/cli/terminal/line_editor.hpp"

#include <algorithm>
#include <cerrno>

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <fmt/core.h>

#include "engine/cli/terminal/output.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::cli {

namespace {

constexpr size_t kLongestLine = size_t{1} << 20, kMostLines = 1000;

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

size_t bytes_of_character(char first) {
  const auto c = static_cast<unsigned char>(first);
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

size_t columns_in(std::string_view text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    columns += static_cast<size_t>(text[at] == '\n' ? 1 : display_width(point.value));
    at += point.length;
  }
  return columns;
}

// Sets the terminal to raw input without echo during its lifetime.
class RawTerminal {
 public:
  RawTerminal() {
    set_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    termios raw = before_;
    raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON | INLCR);
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (set_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  ~RawTerminal() {
    if (set_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  termios before_{};
  bool set_ = false;
};

void write_terminal(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Draws the line on one line of the terminal, scrolled so that the cursor is visible.
void draw_line(const std::string& prompt, const EditedLine& line) {
  const size_t room = std::max<size_t>(terminal_columns(), columns_in(prompt) + 8) - columns_in(prompt) - 1;
  std::string_view shown = line.text();
  size_t cursor = line.cursor();
  while (columns_in(shown.substr(0, cursor)) > room) {
    const size_t first = decode_utf8(shown, 0).length;
    shown.remove_prefix(first);
    cursor -= first;
  }
  while (columns_in(shown) > room) {
    size_t last = shown.size() - 1;
    while (last > 0 && continues_character(shown[last])) --last;
    shown = shown.substr(0, last);
  }
  std::string text(shown);
  std::replace(text.begin(), text.end(), '\n', ' ');
  const size_t column = columns_in(prompt) + columns_in(shown.substr(0, cursor));
  write_terminal("\r" + prompt + visible(text) + "\x1b[K\r" + (column > 0 ? fmt::format("\x1b[{}C", column) : ""));
}

}  // namespace

EditedLine::State EditedLine::take(char byte) {
  if (!pending_.empty() || byte == '\x1b') {
    pending_ += byte;
    if (pending_[0] != '\x1b') {
      if (pending_.size() < bytes_of_character(pending_[0])) return State::open;
      insert(pending_);
      pending_.clear();
      return State::open;
    }
    const size_t size = pending_.size();
    if (size == 1 || (size == 2 && (byte == '[' || byte == 'O'))) return State::open;
    if (size > 2 && size < 16 && !(byte >= '@' && byte <= '~')) return State::open;
    const std::string escape = pending_.substr(1);
    pending_.clear();
    return key(escape);
  }
  const auto c = static_cast<unsigned char>(byte);
  if (pasting_ && (byte == '\r' || byte == '\n')) {
    insert("\n");
    return State::open;
  }
  if (c < 0x20 || c == 0x7F) return control(byte);
  if (c < 0x80) {
    insert({&byte, 1});
  } else if (c >= 0xC2 && c < 0xF5) {
    pending_ = byte;
  }
  return State::open;
}

EditedLine::State EditedLine::control(char byte) {
  switch (byte) {
    case '\r':
    case '\n':
      return State::done;
    case 1:  // Ctrl-A
      cursor_ = 0;
      break;
    case 2:  // Ctrl-B
      cursor_ = left();
      break;
    case 3:  // Ctrl-C
      return State::cancelled;
    case 4:  // Ctrl-D
      if (text_.empty()) return State::ended;
      erase(cursor_, right());
      break;
    case 5:  // Ctrl-E
      cursor_ = text_.size();
      break;
    case 6:  // Ctrl-F
      cursor_ = right();
      break;
    case 8:
    case 0x7F:
      erase(left(), cursor_);
      break;
    case 11:  // Ctrl-K
      erase(cursor_, text_.size());
      break;
    case 14:  // Ctrl-N
      if (place_ < history_.size()) recall(place_ + 1);
      break;
    case 16:  // Ctrl-P
      if (place_ > 0) recall(place_ - 1);
      break;
    case 21:  // Ctrl-U
      erase(0, cursor_);
      break;
    case 23:  // Ctrl-W
      erase(word_left(), cursor_);
      break;
    case '\t':
      insert(" ");
      break;
    default:
      break;
  }
  return State::open;
}

EditedLine::State EditedLine::key(std::string_view escape) {
  if (escape == "[A" || escape == "OA") {
    if (place_ > 0) recall(place_ - 1);
  } else if (escape == "[B" || escape == "OB") {
    if (place_ < history_.size()) recall(place_ + 1);
  } else if (escape == "[C" || escape == "OC") {
    cursor_ = right();
  } else if (escape == "[D" || escape == "OD") {
    cursor_ = left();
  } else if (escape == "[H" || escape == "OH" || escape == "[1~" || escape == "[7~") {
    cursor_ = 0;
  } else if (escape == "[F" || escape == "OF" || escape == "[4~" || escape == "[8~") {
    cursor_ = text_.size();
  } else if (escape == "[3~") {
    erase(cursor_, right());
  } else if (escape == "[1;5D" || escape == "b") {
    cursor_ = word_left();
  } else if (escape == "[200~") {
    pasting_ = true;
  } else if (escape == "[201~") {
    pasting_ = false;
  }
  return State::open;
}

void EditedLine::insert(std::string_view bytes) {
  if (find_invalid_utf8(bytes) || text_.size() + bytes.size() > kLongestLine) return;
  text_.insert(cursor_, bytes);
  cursor_ += bytes.size();
}

void EditedLine::erase(size_t from, size_t to) {
  text_.erase(from, to - from);
  cursor_ = from;
}

void EditedLine::recall(size_t place) {
  if (place_ == history_.size()) draft_ = text_;
  place_ = place;
  text_ = place < history_.size() ? history_[place] : draft_;
  cursor_ = text_.size();
}

size_t EditedLine::left() const {
  size_t at = cursor_;
  while (at > 0 && continues_character(text_[--at])) {
  }
  return at;
}

size_t EditedLine::right() const {
  size_t at = cursor_;
  if (at < text_.size()) ++at;
  while (at < text_.size() && continues_character(text_[at])) ++at;
  return at;
}

size_t EditedLine::word_left() const {
  size_t at = cursor_;
  while (at > 0 && text_[at - 1] == ' ') --at;
  while (at > 0 && text_[at - 1] != ' ') --at;
  return at;
}

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  flush_output();
  const RawTerminal raw;
  write_terminal("\x1b[?2004h");  // enables bracketed paste
  EditedLine line(history_);
  EditedLine::State state = EditedLine::State::open;
  draw_line(prompt, line);
  while (state == EditedLine::State::open) {
    char byte = 0;
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    state = got == 1 ? line.take(byte) : EditedLine::State::ended;
    draw_line(prompt, line);
  }
  write_terminal("\x1b[?2004l\r\n");
  if (state == EditedLine::State::ended) return std::nullopt;
  if (state == EditedLine::State::cancelled) return "";
  if (!line.text().empty() && (history_.empty() || history_.back() != line.text())) {
    if (history_.size() == kMostLines) history_.erase(history_.begin());
    history_.push_back(line.text());
  }
  return line.text();
}

}  // namespace harmonics::engine::cli
