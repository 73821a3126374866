// UTF-8: decoding, validation, and the terminal columns of a character.
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

// Decodes the code point at a byte offset inside the text. Overlong forms, surrogates and values above U+10FFFF are
// invalid.
CodePoint decode_utf8(std::string_view text, size_t offset);
// Returns the offset of the first byte that is not UTF-8.
std::optional<size_t> find_invalid_utf8(std::string_view text);
// Returns the number of terminal columns: 0 (combining), 1, or 2 (wide). Control characters count 1.
int display_width(char32_t value);
// Returns whether the character would disturb a terminal or hide part of a line (controls, direction overrides).
bool is_unprintable(char32_t value);
// Returns at most `length` characters of a text for a message, with '?' for each unprintable or invalid one.
std::string printable(std::string_view text, size_t length = 32);
// Returns a name for messages: quoted, shortened, control characters replaced.
std::string shown_name(std::string_view name);
// Makes a text of several lines safe for a terminal: keeps line breaks and tabs, and writes other unprintable
// characters and invalid UTF-8 as \x1b or \u202e.
std::string visible(std::string_view text);
// Repairs serialized JSON: unprintable characters, which occur only in strings, are written as \u001b, and invalid
// UTF-8 as '?'.
std::string valid_json(std::string serialized);
// Rewrites the numbers of serialized JSON without exponents where readable, without loss: 9.76E2 as 976.0, 2.5E-4 as
// 0.00025. Very large and very small numbers keep their exponent.
std::string plain_numbers(std::string_view serialized);

}  // namespace harmonics
