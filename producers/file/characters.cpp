#include "producers/file/characters.hpp"

#include <cstdio>

#include "formats/utf8.hpp"

namespace harmonics {

std::optional<char32_t> character_at(std::string_view text, size_t& at) {
  const CodePoint point = decode_utf8(text, at);
  at += point.length;
  return point.valid ? std::optional(point.value) : std::nullopt;
}

std::string shown_bytes(std::string_view text) {
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    if (character_at(text, at)) {
      shown += text.substr(start, at - start);
      continue;
    }
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\x%02X", static_cast<unsigned>(static_cast<uint8_t>(text[start])));
    shown += hex;
    at = start + 1;
  }
  return shown;
}

}  // namespace harmonics
