#include "formats/utf8.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

namespace harmonics {

namespace {

struct Range {
  char32_t first, last;
};

// Coarse Unicode blocks, precise enough to align a caret with its character.
constexpr Range kZeroWidth[] = {{0x300, 0x36F},   {0x483, 0x489},   {0x591, 0x5BD},   {0x610, 0x61A},
                                {0x64B, 0x65F},   {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200F},
                                {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xE0100, 0xE01EF}};
constexpr Range kWide[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},  {0xAC00, 0xD7A3},
                           {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},  {0xFFE0, 0xFFE6},
                           {0x1F300, 0x1F64F}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
constexpr size_t kLongestName = 80;  // bytes of a name in a message
constexpr Range kUnprintable[] = {{0x0, 0x1F}, {0x7F, 0x9F}, {0x2028, 0x202E}, {0x2066, 0x2069}, {0xFEFF, 0xFEFF}};

template <size_t N>
bool in(const Range (&ranges)[N], char32_t value) {
  for (const Range& range : ranges) {
    if (value >= range.first && value <= range.last) return true;
  }
  return false;
}

}  // namespace

CodePoint decode_utf8(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const unsigned char lead = byte(0);
  const CodePoint invalid{lead, 1, false};
  if (lead < 0x80) return {lead, 1, true};
  const uint32_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() - offset < length) return invalid;
  char32_t value = lead & (0x7F >> length);
  for (uint32_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return invalid;
    value = value << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  if (overlong || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return invalid;
  return {value, length, true};
}

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    if (static_cast<unsigned char>(text[offset]) < 0x80) {
      ++offset;
      continue;
    }
    const CodePoint point = decode_utf8(text, offset);
    if (!point.valid) return offset;
    offset += point.length;
  }
  return std::nullopt;
}

int display_width(char32_t value) { return in(kZeroWidth, value) ? 0 : in(kWide, value) ? 2 : 1; }

bool is_unprintable(char32_t value) { return in(kUnprintable, value); }

std::string printable(std::string_view text, size_t length) {
  std::string shown;
  for (size_t at = 0; at < text.size() && length > 0; --length) {
    const CodePoint point = decode_utf8(text, at);
    shown += !point.valid || is_unprintable(point.value) ? "?" : std::string(text.substr(at, point.length));
    at += point.length;
  }
  return shown;
}

std::string shown_name(std::string_view name) {
  std::string out = "'";
  for (size_t at = 0; at < name.size();) {
    if (out.size() > kLongestName) return out + "...'";
    const CodePoint point = decode_utf8(name, at);
    if (point.valid && !is_unprintable(point.value))
      out += name.substr(at, point.length);
    else
      out += '?';
    at += point.length;
  }
  return out + "'";
}

namespace {

bool is_plain(char c) { return c >= ' ' && c < '\x7f'; }

void append_hex(std::string& to, char32_t value, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) to += "0123456789abcdef"[value >> shift & 15];
}

}  // namespace

std::string visible(std::string_view text) {
  const auto stays = [](char c) { return is_plain(c) || c == '\n' || c == '\t'; };
  std::string shown;
  shown.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (stays(text[at])) {  // fast path
      shown += text[at++];
      continue;
    }
    const CodePoint point = decode_utf8(text, at);
    if (point.valid && !is_unprintable(point.value)) {
      shown += text.substr(at, point.length);
    } else {
      const bool byte = point.value < 0x100;
      shown += byte ? "\\x" : "\\u";
      append_hex(shown, point.value, byte ? 2 : 4);  // all are at most U+FEFF
    }
    at += point.length;
  }
  return shown;
}

std::string valid_json(std::string serialized) {
  if (std::all_of(serialized.begin(), serialized.end(), is_plain)) return serialized;
  std::string text;
  text.reserve(serialized.size());
  for (size_t at = 0; at < serialized.size();) {
    if (is_plain(serialized[at])) {
      text += serialized[at++];
      continue;
    }
    const CodePoint point = decode_utf8(serialized, at);
    if (!point.valid) {
      text += '?';
    } else if (is_unprintable(point.value)) {
      text += "\\u";
      append_hex(text, point.value, 4);
    } else {
      text.append(serialized, at, point.length);
    }
    at += point.length;
  }
  return text;
}

namespace {

// Appends a number without an exponent if that form is short enough to read.
void append_plain(std::string& to, std::string_view number) {
  constexpr double kSmallest = 1e-6, kLargest = 1e15;
  double v = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), v);
  const double size = std::abs(v);
  char text[64];
  if (error != std::errc() || end != number.data() + number.size() ||
      (size != 0 && (size < kSmallest || size >= kLargest))) {
    to += number;
    return;
  }
  const auto written = std::to_chars(text, text + sizeof(text), v, std::chars_format::fixed);
  const std::string_view plain(text, written.ptr);
  to += plain;
  if (plain.find('.') == std::string_view::npos) to += ".0";  // readers must still parse it as a real number
}

}  // namespace

std::string plain_numbers(std::string_view serialized) {
  std::string text;
  text.reserve(serialized.size());
  for (size_t at = 0; at < serialized.size();) {
    size_t end = at;
    if (serialized[at] == '"') {
      for (++end; end < serialized.size() && serialized[end] != '"'; ++end) end += serialized[end] == '\\';
      end = std::min(end + 1, serialized.size());
      text += serialized.substr(at, end - at);
    } else if (serialized[at] == '-' || (serialized[at] >= '0' && serialized[at] <= '9')) {
      end = std::min(serialized.find_first_not_of("+-.0123456789eE", at), serialized.size());
      const std::string_view number = serialized.substr(at, end - at);
      if (number.find_first_of("eE") == std::string_view::npos)
        text += number;
      else
        append_plain(text, number);
    } else {
      text += serialized[end++];
    }
    at = end;
  }
  return text;
}

}  // namespace harmonics
