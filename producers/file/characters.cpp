#include "producers/file/characters.hpp"

#include <cstdio>

namespace harmonics {

std::optional<char32_t> character_at(std::string_view text, size_t& at) {
  const auto lead = static_cast<uint8_t>(text[at++]);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 && lead <= 0xF4 ? 3 : lead >= 0xE0 ? 2 : 1;
  char32_t c = lead & (0x3F >> more);
  bool good = lead >= 0xC2 && lead <= 0xF4;
  for (int i = 0; i < more && good; ++i) {
    good = at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
    if (good) c = c << 6 | (static_cast<uint8_t>(text[at++]) & 0x3F);
  }
  constexpr char32_t least[] = {0, 0x80, 0x800, 0x10000};
  if (!good || c < least[more] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return std::nullopt;
  return c;
}

std::optional<size_t> first_not_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    if (!character_at(text, at)) return start;
  }
  return std::nullopt;
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
