// Editing the input line of a terminal.
#include <catch2/catch.hpp>

#include "engine/cli/terminal/line_editor.hpp"

using namespace harmonics::engine::cli;

namespace {

// Returns the line after these bytes, with '|' at the cursor.
std::string typed(const std::string& bytes, const std::vector<std::string>& history = {}) {
  EditedLine line(history);
  for (const char byte : bytes) line.take(byte);
  std::string text = line.text();
  return text.insert(line.cursor(), "|");
}

}  // namespace

TEST_CASE("line editor: characters are inserted, removed and passed whole") {
  CHECK(typed("abc") == "abc|");
  CHECK(typed("abc\x1b[D\x1b[Dx") == "ax|bc");
  CHECK(typed("a\xC3\xA9\xF0\x9F\x99\x82\x7F") == "a\xC3\xA9|");
  CHECK(typed("a\xC3\xA9\x1b[D\x1b[3~") == "a|");
  CHECK(typed("one two\x17") == "one |");
  CHECK(typed("one two\x01\x0B") == "|");
  CHECK(typed("one two\x15x") == "x|");
  CHECK(typed("ab\x1b[Hx\x1b[Fy") == "xaby|");
  CHECK(typed("a\xFF\xC3x") == "a|");  // no UTF-8: left out
  CHECK(typed("a\x1b[99;99Zb") == "ab|");
}

TEST_CASE("line editor: lines of the history are recalled, and the new one comes back") {
  const std::vector<std::string> history = {"first", "second"};
  CHECK(typed("new\x1b[A", history) == "second|");
  CHECK(typed("new\x1b[A\x1b[A\x1b[A", history) == "first|");
  CHECK(typed("new\x1b[A\x1b[B", history) == "new|");
  CHECK(typed("\x1b[A!\x1b[B\x1b[A", history) == "second|");
}

TEST_CASE("line editor: ends of a line, and pasted ones") {
  const std::vector<std::string> none;
  EditedLine line(none);
  CHECK(line.take('a') == EditedLine::State::open);
  CHECK(line.take('\r') == EditedLine::State::done);
  CHECK(EditedLine(none).take(3) == EditedLine::State::cancelled);
  CHECK(EditedLine(none).take(4) == EditedLine::State::ended);
  CHECK(line.take(4) == EditedLine::State::open);
  CHECK(typed("\x1b[200~a\rb\x1b[201~c") == "a\nbc|");
}
