#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "engine/language/whole_characters.hpp"
#include "formats/utf8.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

const std::string kReplaced = "\xEF\xBF\xBD";

std::string in_pieces(const std::string& bytes, size_t length) {
  WholeCharacters characters;
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += length) {
    const std::string piece = characters.push(bytes.substr(at, length));
    CHECK(!find_invalid_utf8(piece));
    text += piece;
  }
  return text += characters.finish();
}

}  // namespace

TEST_CASE("whole characters: text in pieces of any length stays the same") {
  const std::string text = "a\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \xF4\x8F\xBF\xBF z \xED\x9F\xBF\xE0\xA0\x80";
  for (size_t length = 1; length <= text.size(); ++length) CHECK(in_pieces(text, length) == text);
}

TEST_CASE("whole characters: the beginning of a character waits for its end") {
  WholeCharacters characters;
  CHECK(characters.push("a\xE2") == "a");
  CHECK(characters.unfinished());
  CHECK(characters.push("\x82") == "");
  CHECK(characters.push("\xAC!") == "\xE2\x82\xAC!");
  CHECK(!characters.unfinished());
  CHECK(characters.finish() == "");
  CHECK(characters.push("\xF0\x9F") == "");
  CHECK(characters.finish() == kReplaced);
  CHECK(characters.push("b") == "b");  // restarts
}

TEST_CASE("whole characters: bytes that cannot be part of a character are replaced at once") {
  for (const std::string bad : {"\x80", "\xC0", "\xC1", "\xF5", "\xFF"}) {
    WholeCharacters characters;
    CHECK(characters.push(bad) == kReplaced);
    CHECK(!characters.unfinished());
  }
  // An overlong form, a surrogate, and a value above U+10FFFF are recognised by their second byte.
  for (const std::string bad : {"\xE0\x80", "\xED\xA0", "\xF0\x80", "\xF4\x90"}) {
    WholeCharacters characters;
    CHECK(characters.push(bad) == kReplaced + kReplaced);
  }
  WholeCharacters characters;
  CHECK(characters.push("\xE2\x82") == "");
  CHECK(characters.push("a") == kReplaced + "a");  // one for the longest start of a character
}

TEST_CASE("whole characters: every pair of bytes gives valid text, of any split") {
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      const std::string bytes = {static_cast<char>(a), static_cast<char>(b)};
      const std::string whole = in_pieces(bytes, 2);
      if (whole != in_pieces(bytes, 1)) FAIL_CHECK(a << " " << b);
      if (!find_invalid_utf8(bytes) && whole != bytes) FAIL_CHECK(a << " " << b);
    }
}
