// UTF-8: decoding, validity, and how many terminal columns a character takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace harmonics {

struct CodePoint {
  char32_t value = 0;
  uint32_t length = 1;  // bytes; 1 for an invalid byte
  bool valid = false;
};

// The code point at a byte offset (which must lie inside the text). Overlong forms, surrogates and values above
// U+10FFFF are invalid.
CodePoint decode_utf8(std::string_view text, size_t offset);
// Offset of the first byte that is not UTF-8.
std::optional<size_t> find_invalid_utf8(std::string_view text);
// Columns on a terminal: 0 (combining), 1, or 2 (wide). Control characters count 1.
int display_width(char32_t value);
// Would this character disturb a terminal or hide what a line says (controls, direction overrides)?
bool is_unprintable(char32_t value);
// At most `length` characters of a text for a message; a '?' for each that is unprintable or no UTF-8.
std::string printable(std::string_view text, size_t length = 32);
// A text of several lines as a terminal may show it: line breaks and tabs stay, other unprintable characters and bytes
// that are no UTF-8 are written as \x1b or \u202e.
std::string visible(std::string_view text);
// Serialized JSON, where such characters stand in strings alone: they are written \u001b, a byte that is no UTF-8 as
// '?'.
std::string valid_json(std::string serialized);

}  // namespace harmonics
