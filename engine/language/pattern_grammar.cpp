#include "engine/language/pattern_grammar.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr int kPatternDepth = 64;
constexpr uint32_t kLastCharacter = 0x10FFFF, kMostTimes = 1000;
constexpr std::string_view kControls = "btnfr";

// Characters as ranges in ascending order.
class Characters {
 public:
  void add(uint32_t from, uint32_t to) { ranges_.emplace_back(from, to); }
  void add(const Characters& others) { ranges_.insert(ranges_.end(), others.ranges_.begin(), others.ranges_.end()); }
  Characters inverse() const {
    std::vector<std::pair<uint32_t, uint32_t>> sorted = ranges_;
    std::sort(sorted.begin(), sorted.end());
    Characters rest;
    uint32_t next = 0;
    for (const auto& [from, to] : sorted) {
      if (from > next) rest.add(next, from - 1);
      next = std::max(next, to + 1);
    }
    if (next <= kLastCharacter) rest.add(next, kLastCharacter);
    return rest;
  }
  bool has(uint32_t c) const {
    return std::any_of(ranges_.begin(), ranges_.end(), [c](const auto& r) { return c >= r.first && c <= r.second; });
  }
  bool empty() const { return ranges_.empty(); }

  // Returns a set of a grammar, without surrogates; "" if it is empty.
  std::string plain_term() const {
    Characters rest = inverse();
    rest.add(0xD800u, 0xDFFFu);
    const Characters plain = rest.inverse();
    if (plain.empty()) return "";
    std::string set = "[";
    for (const auto& [from, to] : plain.ranges_) {
      set += fmt::format("\\U{:08X}", from);
      if (to > from) set += fmt::format("-\\U{:08X}", to);
    }
    return set + "]";
  }
  // Returns a term of a grammar. Characters that JSON strings escape are written as their escapes.
  std::string json_term() const {
    Characters plain = inverse();
    for (const auto& [from, to] : {std::pair(0u, 0x1Fu), std::pair(0x22u, 0x22u), std::pair(0x5Cu, 0x5Cu)})
      plain.add(from, to);
    plain = plain.inverse();
    std::string all;
    const auto alternative = [&all](const std::string& text) { all += (all.empty() ? "" : " | ") + text; };
    if (const std::string set = plain.plain_term(); !set.empty()) alternative(set);
    if (has('"')) alternative(R"("\\\"")");
    if (has('\\')) alternative(R"("\\\\")");
    constexpr uint32_t kCodes[] = {'\b', '\t', '\n', '\f', '\r'};
    for (size_t i = 0; i < kControls.size(); ++i)
      if (has(kCodes[i])) alternative(fmt::format("\"\\\\{}\"", kControls[i]));
    return all.find('|') == std::string::npos ? all : "( " + all + " )";
  }

 private:
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;
};

Characters digit_characters() {
  Characters set;
  set.add('0', '9');
  return set;
}
Characters word_characters() {
  Characters set = digit_characters();
  set.add('A', 'Z');
  set.add('a', 'z');
  set.add('_', '_');
  return set;
}
Characters space_characters() {
  Characters set;
  for (const auto& [from, to] :
       {std::pair(0x09u, 0x0Du), std::pair(0x20u, 0x20u), std::pair(0xA0u, 0xA0u), std::pair(0x1680u, 0x1680u),
        std::pair(0x2000u, 0x200Au), std::pair(0x2028u, 0x2029u), std::pair(0x202Fu, 0x202Fu),
        std::pair(0x205Fu, 0x205Fu), std::pair(0x3000u, 0x3000u), std::pair(0xFEFFu, 0xFEFFu)})
    set.add(from, to);
  return set;
}

class PatternReader {
 public:
  // `json`: for matches inside JSON strings, instead of whole texts.
  PatternReader(std::string_view text, bool json) : text_(text), json_(json) {}

  std::string read() {
    const std::string all = alternatives(true);
    if (at_ < text_.size()) fail("')' closes nothing");
    return all;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::Usage, fmt::format("the pattern, character {}: {}", at_ + 1, what));
  }
  bool more() const { return at_ < text_.size(); }
  char peek() const { return more() ? text_[at_] : '\0'; }
  bool takes(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  // `outer`: of the whole pattern, whose matches may begin and end anywhere.
  std::string alternatives(bool outer) {
    if (++depth_ > kPatternDepth) fail(fmt::format("it is nested more than {} deep", kPatternDepth));
    std::string all;
    do {
      const bool first = outer && takes("^");
      std::string sequence = json_ && outer && !first ? "character* " : "";
      while (more() && peek() != '|' && peek() != ')' && !(outer && is_end())) sequence += repeated(atom()) + " ";
      if (outer && !takes("$") && json_) sequence += "character*";
      all += (all.empty() ? "" : " | ") + (sequence.empty() ? "\"\"" : sequence);
    } while (takes("|"));
    --depth_;
    return all;
  }
  // Returns whether a "$" at the end of the pattern or of an alternative is next.
  bool is_end() const { return peek() == '$' && (at_ + 1 == text_.size() || text_[at_ + 1] == '|'); }

  std::string atom() {
    if (takes("(")) {
      if (takes("?<") && peek() != '=' && peek() != '!') {
        while (more() && peek() != '>') ++at_;
        if (!takes(">")) fail("the name of a group ends with '>'");
      } else if (text_[at_ - 1] != '(' || (takes("?") && !takes(":"))) {
        fail("of groups that begin with '?', only (?:...) and (?<name>...) are supported");
      }
      const std::string inner = alternatives(false);
      if (!takes(")")) fail("a group ends with ')'");
      return "( " + inner + " )";
    }
    if (takes("[")) return term(set());
    if (takes(".")) {
      Characters lines;
      for (const uint32_t c : {0x0Au, 0x0Du, 0x2028u, 0x2029u}) lines.add(c, c);
      return term(lines.inverse());
    }
    for (const char mark : {'^', '$'})
      if (peek() == mark) fail(fmt::format("'{}' is only supported at the ends", mark));
    for (const char mark : {'*', '+', '?', '{'})
      if (peek() == mark) fail(fmt::format("'{}' repeats nothing", mark));
    return term(character_or_class());
  }

  std::string term(const Characters& set) const {
    const std::string text = json_ ? set.json_term() : set.plain_term();
    if (text.empty()) fail("these characters cannot be in the string");
    return text;
  }

  std::string repeated(std::string term) {
    std::string times;
    if (takes("*")) {
      times = "*";
    } else if (takes("+")) {
      times = "+";
    } else if (takes("?")) {
      times = "?";
    } else if (takes("{")) {
      const uint32_t least = count();
      times = fmt::format("{{{}", least);
      if (takes(",")) {
        times += ",";
        if (peek() != '}') {
          const uint32_t most = count();
          if (most < least) fail("the largest number of times is below the smallest");
          times += std::to_string(most);
        }
      }
      if (!takes("}")) fail("a number of times ends with '}'");
      times += "}";
    } else {
      return term;
    }
    takes("?");  // lazy: the same texts
    return term + times;
  }

  uint32_t count() {
    uint32_t value = 0;
    const size_t begin = at_;
    for (; more() && peek() >= '0' && peek() <= '9'; ++at_) {
      value = value * 10 + static_cast<uint32_t>(peek() - '0');
      if (value > kMostTimes) fail(fmt::format("the limit of a number of times is {}", kMostTimes));
    }
    if (at_ == begin) fail("a number of times is expected");
    return value;
  }

  uint32_t hexadecimal(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail(fmt::format("{} hexadecimal digits are expected", digits));
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    return value;
  }

  static Characters single(uint32_t c) {
    Characters set;
    set.add(c, c);
    return set;
  }

  uint32_t literal() {
    const CodePoint point = decode_utf8(text_, at_);
    at_ += point.length;
    return point.value;
  }

  // Reads a character, or a class such as \d. `one`: the character; none for a class.
  Characters character_or_class(std::optional<uint32_t>* one = nullptr) {
    const auto character = [one](uint32_t c) {
      if (one) *one = c;
      return single(c);
    };
    if (!takes("\\")) {
      return character(literal());
    }
    if (!more()) fail("'\\' ends the pattern");
    const char c = text_[at_++];
    switch (c) {
      case 'd':
        return digit_characters();
      case 'D':
        return digit_characters().inverse();
      case 'w':
        return word_characters();
      case 'W':
        return word_characters().inverse();
      case 's':
        return space_characters();
      case 'S':
        return space_characters().inverse();
      case 'x':
        return character(hexadecimal(2));
      case 'u':
        return character(hexadecimal(4));
      default:
        break;
    }
    constexpr std::string_view kNames = "tnfrv0";
    constexpr uint32_t kValues[] = {'\t', '\n', '\f', '\r', '\v', '\0'};
    if (const size_t found = kNames.find(c); found != std::string_view::npos) return character(kValues[found]);
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9');
    if (letter) fail(fmt::format("'\\{}' is not supported", c));
    --at_;
    return character(literal());
  }

  Characters set() {
    const bool inverted = takes("^");
    Characters all;
    while (more() && peek() != ']') {
      std::optional<uint32_t> from, to;
      const Characters first = character_or_class(&from);
      if (!from || peek() != '-' || at_ + 1 >= text_.size() || text_[at_ + 1] == ']') {
        all.add(first);
        continue;
      }
      takes("-");
      character_or_class(&to);
      if (!to || *to < *from) fail("a range of characters ends before it begins");
      all.add(*from, *to);
    }
    if (!takes("]")) fail("a set of characters ends with ']'");
    if (all.empty() && !inverted) fail("a set without characters allows nothing");
    return inverted ? all.inverse() : all;
  }

  std::string_view text_;
  bool json_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

namespace {

std::string read_pattern(std::string_view pattern, bool json) {
  if (find_invalid_utf8(pattern)) throw Error(ErrorKind::Usage, "the pattern is not UTF-8");
  return PatternReader(pattern, json).read();
}

}  // namespace

std::string grammar_of_pattern(std::string_view pattern) { return read_pattern(pattern, true); }
std::string grammar_of_whole_pattern(std::string_view pattern) { return read_pattern(pattern, false); }

}  // namespace harmonics::engine
