#include "engine/language/whole_characters.hpp"

#include <utility>

#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Returns whether the text is the start of a character that needs more bytes.
bool is_unfinished(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() >= length) return false;
  for (size_t i = 1; i < text.size(); ++i)
    if ((byte(i) & 0xC0) != 0x80) return false;
  if (text.size() == 1) return true;
  const unsigned second = byte(1);  // excludes overlong forms, surrogates and values above U+10FFFF
  if (first == 0xE0) return second >= 0xA0;
  if (first == 0xED) return second < 0xA0;
  if (first == 0xF0) return second >= 0x90;
  return first != 0xF4 || second < 0x90;
}

}  // namespace

std::string WholeCharacters::push(std::string_view bytes) {
  const std::string text = std::exchange(rest_, {}).append(bytes);
  std::string whole;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (point.valid) {
      whole.append(text, at, point.length);
      at += point.length;
    } else if (is_unfinished(std::string_view(text).substr(at))) {
      rest_ = text.substr(at);
      break;
    } else {  // one replacement for the longest start of a character, as Unicode recommends
      whole += kReplacement;
      size_t length = 1;
      while (is_unfinished(std::string_view(text).substr(at, length + 1)) && at + length < text.size()) ++length;
      at += length;
    }
  }
  return whole;
}

std::string WholeCharacters::finish() { return std::exchange(rest_, {}).empty() ? "" : std::string(kReplacement); }

}  // namespace harmonics::engine
