#include "engine/language/template_text.hpp"

#include <algorithm>

#include "formats/utf8.hpp"

namespace harmonics::engine::jinja {

namespace {

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Returns the position of the last character.
size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && continues_character(text[at])) --at;
  return at;
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char to_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_in(std::string_view text, size_t at, const CharacterSet* which) {
  const char32_t character = decode_utf8(text, at).value;
  return which ? which->has(character) : is_space(character);
}

constexpr size_t kShort = 16;  // bytes of a text that is looked for place by place

}  // namespace

CharacterSet::CharacterSet(Budget& budget, std::string_view characters) {
  budget.charge(characters.size() * sizeof(char32_t));
  for (size_t at = 0; at < characters.size();) {
    const CodePoint point = decode_utf8(characters, at);
    if (point.value < ascii_.size())
      ascii_.set(point.value);
    else
      others_.push_back(point.value);
    at += point.length;
  }
  std::sort(others_.begin(), others_.end());
}

bool CharacterSet::has(char32_t character) const {
  if (character < ascii_.size()) return ascii_.test(character);
  return std::binary_search(others_.begin(), others_.end(), character);
}

Needle::Needle(Budget& budget, std::string_view part, bool from_right)
    : budget_(budget), part_(part), from_right_(from_right) {
  if (part.size() <= kShort) return;
  budget.charge(part.size() * sizeof(uint32_t));
  borders_.resize(part.size());
  for (size_t i = 1, equal = 0; i < part.size(); ++i) {
    while (equal > 0 && at(i) != at(equal)) equal = borders_[equal - 1];
    if (at(i) == at(equal)) ++equal;
    borders_[i] = static_cast<uint32_t>(equal);
  }
}

size_t Needle::find(std::string_view text, size_t from) const {
  budget_.spend(1);
  const uint64_t allowed = budget_.steps_left() * 16 + part_.size();
  const size_t length = static_cast<size_t>(std::min<uint64_t>(text.size() - from, allowed));
  const bool all = length == text.size() - from;
  const size_t begin = from_right_ ? text.size() - length : from;
  const size_t found = borders_.empty() ? look_short(text.substr(begin, length)) : look(text.substr(begin, length));
  if (found == std::string_view::npos) {
    budget_.scan(all ? length : length + 16);  // clipped: the rest is more than the limit
    return found;
  }
  budget_.scan((from_right_ ? length - found : found) + part_.size());
  return begin + found;
}

size_t Needle::look_short(std::string_view text) const { return from_right_ ? text.rfind(part_) : text.find(part_); }

size_t Needle::look(std::string_view text) const {
  for (size_t i = 0, equal = 0; i < text.size(); ++i) {
    const char c = from_right_ ? text[text.size() - 1 - i] : text[i];
    while (equal > 0 && c != at(equal)) equal = borders_[equal - 1];
    if (c == at(equal)) ++equal;
    if (equal == part_.size()) return from_right_ ? text.size() - 1 - i : i + 1 - equal;
  }
  return std::string_view::npos;
}

size_t characters_in(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continues_character(c); }));
}

std::string_view characters(std::string_view text, int64_t first, int64_t last) {
  size_t begin = text.size(), end = text.size();
  int64_t number = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (continues_character(text[at])) continue;
    if (number == first) begin = at;
    if (number == last) {
      end = at;
      break;
    }
    ++number;
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

std::string_view stripped(std::string_view text, bool left, bool right, const CharacterSet* which) {
  while (left && !text.empty() && is_in(text, 0, which)) text.remove_prefix(decode_utf8(text, 0).length);
  while (right && !text.empty()) {
    const size_t at = last_character(text);
    if (!is_in(text, at, which)) break;
    text = text.substr(0, at);
  }
  return text;
}

std::vector<std::string_view> split_words(std::string_view text, int64_t most, bool from_right) {
  std::vector<std::string_view> parts;
  text = stripped(text, !from_right, from_right);
  while (!text.empty()) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(text);
      break;
    }
    if (from_right) {
      size_t begin = text.size();
      while (begin > 0) {
        const size_t at = last_character(text.substr(0, begin));
        if (is_in(text, at, nullptr)) break;
        begin = at;
      }
      parts.push_back(text.substr(begin));
      text = stripped(text.substr(0, begin), false, true);
    } else {
      size_t end = 0;
      while (end < text.size() && !is_in(text, end, nullptr)) end += decode_utf8(text, end).length;
      parts.push_back(text.substr(0, end));
      text = stripped(text.substr(end), true, false);
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_at(std::string_view text, const Needle& separator, int64_t most, bool from_right) {
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = separator.find(text);
    if (at == std::string_view::npos) break;
    const std::string_view before = text.substr(0, at), behind = text.substr(at + separator.size());
    parts.push_back(from_right ? behind : before);
    text = from_right ? before : behind;
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool with_ends) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    size_t end = text.find_first_of("\r\n\v\f");
    size_t behind = text.size();
    if (end == std::string_view::npos)
      end = text.size();
    else
      behind = end + (text.substr(end, 2) == "\r\n" ? 2 : 1);
    lines.push_back(text.substr(0, with_ends ? behind : end));
    text.remove_prefix(behind);
  }
  return lines;
}

size_t count_of(std::string_view text, const Needle& part) {
  size_t count = 0;
  for (size_t at = part.find(text); at != std::string_view::npos; at = part.find(text, at + part.size())) ++count;
  return count;
}

std::string upper_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), to_upper);
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), to_lower);
  return out;
}

std::string capitalised(std::string_view text) {
  std::string out = lower_case(text);
  if (!out.empty()) out[0] = to_upper(out[0]);
  return out;
}

// A word begins, for Python's method, after anything but a letter; for Jinja's filter, after white space and -({[<.
std::string title_case(std::string_view text, bool words_of_letters) {
  std::string out = lower_case(text);
  bool begins = true;
  for (char& c : out) {
    if (begins) c = to_upper(c);
    begins = words_of_letters ? !is_letter(c) && static_cast<unsigned char>(c) < 0x80
                              : is_space(static_cast<unsigned char>(c)) ||
                                    std::string_view("-({[<").find(c) != std::string_view::npos;
  }
  return out;
}

}  // namespace harmonics::engine::jinja
