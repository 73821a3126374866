#include <catch2/catch.hpp>

#include "formats/utf8.hpp"

using namespace harmonics;
using namespace harmonics::engine;

TEST_CASE("utf8: every code point decodes as encoded") {
  for (char32_t c = 1; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    if (c < 0x80) {
      text = {static_cast<char>(c)};
    } else if (c < 0x800) {
      text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    } else if (c < 0x10000) {
      text = {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
              static_cast<char>(0x80 | (c & 63))};
    } else {
      text = {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
              static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    }
    const CodePoint point = decode_utf8(text, 0);
    if (!point.valid || point.value != c || point.length != text.size()) FAIL("U+" << std::hex << uint32_t(c));
  }
}

TEST_CASE("utf8: invalid bytes are found") {
  CHECK(find_invalid_utf8("größe 漢字 \xF0\x9F\x8E\xB5") == std::nullopt);
  CHECK(find_invalid_utf8("") == std::nullopt);
  CHECK(find_invalid_utf8("ab\x80") == 2);  // a continuation byte alone
  CHECK(find_invalid_utf8("gr\xF6\xDF"
                          "e") == 2);                 // Latin-1
  CHECK(find_invalid_utf8("a\xC3") == 1);             // truncated
  CHECK(find_invalid_utf8("a\xE6\xBC") == 1);         // truncated
  CHECK(find_invalid_utf8("\xC0\x80") == 0);          // overlong
  CHECK(find_invalid_utf8("\xE0\x80\x80") == 0);      // overlong
  CHECK(find_invalid_utf8("\xF0\x80\x80\x80") == 0);  // overlong
  CHECK(find_invalid_utf8("\xED\xA0\x80") == 0);      // a surrogate
  CHECK(find_invalid_utf8("\xF4\x90\x80\x80") == 0);  // above U+10FFFF
  CHECK(find_invalid_utf8("ok\xFF") == 2);
}

TEST_CASE("utf8: widths on a terminal") {
  CHECK(display_width('a') == 1);
  CHECK(display_width(U'é') == 1);
  CHECK(display_width(U'漢') == 2);
  CHECK(display_width(0x301) == 0);
  CHECK(is_unprintable(0x1B));
  CHECK(is_unprintable(0x202E));
  CHECK(!is_unprintable('a'));
}

TEST_CASE("plain numbers: exponents go, values stay") {
  CHECK(plain_numbers("{\"n\":9.76E2,\"small\":-2.5E-4,\"one\":1E0,\"zero\":0E0}") ==
        "{\"n\":976.0,\"small\":-0.00025,\"one\":1.0,\"zero\":0.0}");
  CHECK(plain_numbers("[7,-12,1.5E300,1E-30,1E15]") == "[7,-12,1.5E300,1E-30,1E15]");
  CHECK(plain_numbers("{\"1E2\":\"3E4 \\\" 5E6\"}") == "{\"1E2\":\"3E4 \\\" 5E6\"}");
  CHECK(plain_numbers("[1.7976931348623157E308,1E,-,\"\\") == "[1.7976931348623157E308,1E,-,\"\\");
}
