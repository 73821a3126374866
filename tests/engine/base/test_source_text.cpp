#include <catch2/catch.hpp>

#include "engine/base/source_text.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

std::string shown(const std::string& text, size_t offset, size_t length) {
  const SourceText source("f.hmx", text);
  return source.render(Error(ErrorKind::Syntax, "message", source.span(offset, length)));
}

}  // namespace

TEST_CASE("source text: offsets become lines and columns") {
  const SourceText source("f", "ab\n\ncde\r\nlast");
  const auto at = [&](size_t offset) {
    const Span span = source.span(offset, 1);
    return std::pair(span.line, span.column);
  };
  CHECK(at(0) == std::pair(1u, 1u));
  CHECK(at(2) == std::pair(1u, 3u));
  CHECK(at(3) == std::pair(2u, 1u));
  CHECK(at(4) == std::pair(3u, 1u));
  CHECK(at(9) == std::pair(4u, 1u));
  CHECK(at(1000) == std::pair(4u, 5u));
  CHECK(source.span(1000, 7).length == 0);
  CHECK(source.span(11, 1000).length == 2);
  CHECK(source.line(1) == "ab");
  CHECK(source.line(2) == "");
  CHECK(source.line(3) == "cde");
  CHECK(source.line(4) == "last");
  CHECK(source.line(0) == "");
  CHECK(source.line(5) == "");
}

TEST_CASE("source text: an error shows its line, a caret and its notes") {
  const SourceText source("mnist.hmx", "harmonic a {\n    layer output 1/2 hiden;\n}\n");
  const Error error(ErrorKind::Name, "layer 'output' refers to unknown layer 'hiden'", source.span(34, 5),
                    {"did you mean 'hidden'?", "note: layers are declared with 'layer'"});
  CHECK(source.render(error) ==
        "mnist.hmx:2:22: error: layer 'output' refers to unknown layer 'hiden'\n"
        "    layer output 1/2 hiden;\n"
        "                     ^~~~~\n"
        "help: did you mean 'hidden'?\n"
        "note: layers are declared with 'layer'\n");
  CHECK(source.render(error, "warning").find("mnist.hmx:2:22: warning: layer") == 0);
  CHECK(source.place(error.span()) == "mnist.hmx:2:22");
}

TEST_CASE("source text: an error without a position shows no line") {
  const SourceText source("f.hmx", "text\n");
  CHECK(source.render(Error(ErrorKind::Name, "message")) == "f.hmx: error: message\n");
  CHECK(source.render(Error(ErrorKind::Name, "message", Span{9, 1, 1})) == "f.hmx:9:1: error: message\n");
}

TEST_CASE("source text: the caret is under its token") {
  SECTION("tabs are kept") { CHECK(shown("\ta\tbc", 3, 2) == "f.hmx:1:4: error: message\n\ta\tbc\n\t \t^~\n"); }
  SECTION("a character of several bytes takes one column") {
    CHECK(shown("größe x", 8, 1) == "f.hmx:1:9: error: message\ngröße x\n      ^\n");
  }
  SECTION("a wide character takes two, a combining one none") {
    CHECK(shown("漢e\u0301 x", 7, 1) == "f.hmx:1:8: error: message\n漢e\u0301 x\n    ^\n");
    CHECK(shown("a 漢字 b", 2, 6) == "f.hmx:1:3: error: message\na 漢字 b\n  ^~~~\n");
  }
  SECTION("the end of a line") { CHECK(shown("abc\nd", 3, 1) == "f.hmx:1:4: error: message\nabc\n   ^\n"); }
  SECTION("more than one line: marked to the end of the first") {
    CHECK(shown("abc\ndef", 1, 5) == "f.hmx:1:2: error: message\nabc\n ^~\n");
  }
  SECTION("an empty text") { CHECK(shown("", 0, 1) == "f.hmx:1:1: error: message\n\n^\n"); }
  SECTION("a tab itself") { CHECK(shown("a\tb", 1, 1) == "f.hmx:1:2: error: message\na\tb\n ^\n"); }
}

TEST_CASE("source text: characters that disturb a terminal are shown as a question mark") {
  CHECK(shown("a\x1b[31m\x7f\xff b", 8, 1) == "f.hmx:1:9: error: message\na?[31m?? b\n        ^\n");
  CHECK(shown("\u202Eab", 3, 1) == "f.hmx:1:4: error: message\n?ab\n ^\n");
}

TEST_CASE("source text: a long line is shown only around the error") {
  std::string text(5000, 'a');
  text.append(1, 'X').append(5000, 'b');
  const std::string report = shown(text, 5000, 1);
  CHECK(report.size() < 500);
  const size_t line = report.find('\n') + 1, marks = report.find('\n', line) + 1;
  CHECK(report.substr(line, 3) == "...");
  CHECK(report[line + (report.find('^') - marks)] == 'X');
}

TEST_CASE("source text: errors of one text are reported together") {
  const SourceText source("f", "ab\n");
  const SourceErrors errors(source, {Error(ErrorKind::Shape, "one", source.span(0, 1)), Error(ErrorKind::Name, "two")});
  CHECK(std::string(errors.what()) == "f:1:1: error: one\nab\n^\nf: error: two\n");
  CHECK(errors.kind() == ErrorKind::Shape);
  CHECK(errors.errors().size() == 2);
}
