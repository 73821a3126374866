#include "engine/language/grammar.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr size_t kGrammarBytes = size_t{1} << 20, kGrammarSymbols = size_t{1} << 20;
constexpr int kGrammarDepth = 100;
constexpr int64_t kMostTimes = 2000;
constexpr size_t kClosure = 8000;  // maximum number of stacks visited per byte

using CharacterRange = std::pair<uint32_t, uint32_t>;
using ByteRanges = std::vector<std::pair<uint8_t, uint8_t>>;

// Appends the UTF-8 byte sequences of the characters from `least` to `most`.
void add_utf8(uint32_t least, uint32_t most, std::vector<ByteRanges>& to) {
  if (least > most) return;
  constexpr uint32_t kEnds[] = {0x7F, 0x7FF, 0xD7FF, 0xFFFF, 0x10FFFF};
  for (const uint32_t end : kEnds)
    if (least <= end && most > end) {
      add_utf8(least, end, to);
      return add_utf8(end == 0xD7FF ? std::max(least, 0xE000u) : end + 1, most, to);
    }
  if (least >= 0xD800 && most <= 0xDFFF) return;  // surrogates
  const int length = most <= 0x7F ? 1 : most <= 0x7FF ? 2 : most <= 0xFFFF ? 3 : 4;
  for (int i = 1; i < length; ++i) {
    const uint32_t low = (1u << (6 * i)) - 1;
    if ((least & ~low) == (most & ~low)) continue;
    if ((least & low) != 0) {
      add_utf8(least, least | low, to);
      return add_utf8((least | low) + 1, most, to);
    }
    if ((most & low) != low) {
      add_utf8(least, (most & ~low) - 1, to);
      return add_utf8(most & ~low, most, to);
    }
  }
  constexpr uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
  ByteRanges bytes;
  for (int i = 0; i < length; ++i) {
    const int shift = 6 * (length - 1 - i);
    const uint32_t mark = i == 0 ? kLead[length - 1] : 0x80, mask = i == 0 ? 0xFF : 0x3F;
    bytes.emplace_back(static_cast<uint8_t>(mark | (least >> shift & mask)),
                       static_cast<uint8_t>(mark | (most >> shift & mask)));
  }
  to.push_back(std::move(bytes));
}

std::vector<CharacterRange> others(std::vector<CharacterRange> ranges) {
  std::sort(ranges.begin(), ranges.end());
  std::vector<CharacterRange> all;
  uint32_t next = 0;
  for (const auto& [least, most] : ranges) {
    if (least > next) all.emplace_back(next, least - 1);
    next = std::max(next, most + 1);
  }
  if (next <= 0x10FFFF) all.emplace_back(next, 0x10FFFF);
  return all;
}

}  // namespace

class GrammarParser {
 public:
  GrammarParser(std::string_view text, Grammar& grammar) : text_(text), grammar_(grammar) {}

  void run() {
    skip(true);
    while (at_ < text_.size()) rule();
    for (const auto& [name, index] : names_)
      if (!defined_[index])
        throw error(used_[index],
                    fmt::format("there is no rule '{0}'; write {0} ::= ..., or \"{0}\" for the text", name));
    const auto root = names_.find("root");
    if (root == names_.end()) throw error(0, "there is no rule 'root'");
    grammar_.root_ = root->second;
    store();
    expect_no_left_recursion();
  }

 private:
  using Symbol = Grammar::Symbol;
  using Sequence = std::vector<Symbol>;

  Error error(size_t at, const std::string& what) const {
    const std::string_view before = text_.substr(0, at);
    const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
    const size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return Error(ErrorKind::Syntax, fmt::format("the grammar, line {}, column {}: {}", line + 1, at - start + 1, what));
  }
  [[noreturn]] void fail(const std::string& what) const { throw error(at_, what); }

  // Skips white space and comments, and line ends if `lines`.
  void skip(bool lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#')
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n'))
        ++at_;
      else
        break;
    }
  }
  bool sees(char c) const { return at_ < text_.size() && text_[at_] == c; }
  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }

  std::string name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    if (at_ == begin) fail("expected the name of a rule");
    return std::string(text_.substr(begin, at_ - begin));
  }
  uint32_t index_of(const std::string& name, size_t at) {
    const auto [entry, added] = names_.try_emplace(name, static_cast<uint32_t>(rules_.size()));
    if (added) add_rule(at);
    return entry->second;
  }
  uint32_t add_rule(size_t at) {
    rules_.emplace_back();
    defined_.push_back(false);
    used_.push_back(at);
    return static_cast<uint32_t>(rules_.size() - 1);
  }
  uint32_t made_rule(std::vector<Sequence> alternatives) {
    const uint32_t index = add_rule(at_);
    defined_[index] = true;
    rules_[index] = std::move(alternatives);
    return index;
  }
  void count(size_t symbols) {
    symbols_ += symbols + 1;
    if (symbols_ > kGrammarSymbols) fail(fmt::format("the grammar has more than {} symbols", kGrammarSymbols));
  }

  void rule() {
    const size_t begin = at_;
    const std::string rule = name();
    const uint32_t index = index_of(rule, begin);
    if (defined_[index]) throw error(begin, fmt::format("the rule '{}' is defined twice", rule));
    skip(false);
    if (text_.substr(at_, 3) != "::=") fail("expected '::='");
    at_ += 3;
    skip(true);
    std::vector<Sequence> all = alternatives(false);
    defined_[index] = true;
    rules_[index] = std::move(all);
    if (at_ < text_.size() && !sees('\n')) fail("expected the end of the rule");
    skip(true);
  }

  std::vector<Sequence> alternatives(bool nested) {
    if (++depth_ > kGrammarDepth) fail(fmt::format("groups are nested more than {} deep", kGrammarDepth));
    std::vector<Sequence> all = {sequence(nested)};
    while (sees('|')) {
      ++at_;
      skip(true);
      all.push_back(sequence(nested));
    }
    --depth_;
    return all;
  }

  Sequence sequence(bool nested) {
    Sequence all;
    for (;;) {
      skip(nested);
      if (at_ == text_.size()) return all;
      const char c = text_[at_];
      Sequence one;
      if (c == '"')
        one = literal();
      else if (c == '[' || c == '.')
        one = characters();
      else if (c == '(')
        one = group();
      else if (is_name(c))
        one = reference();
      else
        return all;
      skip(nested);
      repeat(one);
      count(one.size());
      all.insert(all.end(), one.begin(), one.end());
    }
  }

  Sequence reference() {
    const size_t begin = at_;
    return {{Symbol::rule, 0, 0, index_of(name(), begin)}};
  }

  Sequence group() {
    const size_t begin = at_++;
    skip(true);
    std::vector<Sequence> all = alternatives(true);
    if (!sees(')')) throw error(begin, "the group has no ')'");
    ++at_;
    if (all.size() == 1) return std::move(all[0]);
    return {{Symbol::rule, 0, 0, made_rule(std::move(all))}};
  }

  Sequence literal() {
    const size_t begin = at_++;
    Sequence all;
    while (!sees('"')) {
      if (at_ == text_.size()) throw error(begin, "the text has no closing quote");
      const uint32_t point = character();
      std::vector<ByteRanges> bytes;
      add_utf8(point, point, bytes);
      for (const ByteRanges& one : bytes)
        for (const auto& [least, most] : one) all.push_back({Symbol::bytes, least, most, 0});
    }
    ++at_;
    return all;
  }

  // Parses "[a-z]", "[^\"]" or ".".
  Sequence characters() {
    std::vector<CharacterRange> ranges;
    if (sees('.')) {
      ++at_;
      ranges = {{0, 0x10FFFF}};
    } else {
      const size_t begin = at_++;
      const bool negated = sees('^');
      at_ += negated;
      while (!sees(']')) {
        if (at_ == text_.size()) throw error(begin, "the set has no ']'");
        const uint32_t least = character();
        uint32_t most = least;
        if (sees('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
          ++at_;
          most = character();
        }
        if (most < least) fail("a range of characters ends before it begins");
        ranges.emplace_back(least, most);
      }
      ++at_;
      if (negated) ranges = others(std::move(ranges));
    }
    std::vector<ByteRanges> bytes;
    for (const auto& [least, most] : ranges) add_utf8(least, most, bytes);
    if (bytes.empty()) fail("the set has no characters");
    std::vector<Sequence> all;
    for (const ByteRanges& one : bytes) {
      all.emplace_back();
      count(one.size());
      for (const auto& [least, most] : one) all.back().push_back({Symbol::bytes, least, most, 0});
    }
    if (all.size() == 1) return std::move(all[0]);
    return {{Symbol::rule, 0, 0, made_rule(std::move(all))}};
  }

  uint32_t character() {
    if (text_[at_] != '\\') {
      const CodePoint point = decode_utf8(text_, at_);
      at_ += point.length;
      return point.value;
    }
    ++at_;
    if (at_ == text_.size()) fail("an escape is not complete");
    const char c = text_[at_++];
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return digits(2);
      case 'u':
        return digits(4);
      case 'U':
        return digits(8);
      default:
        if (std::string_view("\\\"[]^-.").find(c) == std::string_view::npos) {
          --at_;
          fail("the escape is unknown; \\n \\r \\t \\\\ \\\" \\[ \\] \\^ \\- \\x41 \\u0041 are known");
        }
        return static_cast<uint32_t>(c);
    }
  }
  uint32_t digits(size_t count) {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i, ++at_) {
      constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
      const size_t digit = at_ < text_.size() ? kDigits.find(text_[at_]) : std::string_view::npos;
      if (digit == std::string_view::npos) fail(fmt::format("the escape needs {} hexadecimal digits", count));
      value = value * 16 + static_cast<uint32_t>(digit < 16 ? digit : digit - 6);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fail("the escape is not a character");
    return value;
  }

  // Parses * + ? {n} {n,} {n,m} after `one`.
  void repeat(Sequence& one) {
    int64_t least = 1, most = 1;  // most < 0: any number
    if (sees('*') || sees('+') || sees('?')) {
      least = text_[at_] == '+';
      most = text_[at_] == '?' ? 1 : -1;
      ++at_;
    } else if (sees('{')) {
      ++at_;
      least = number();
      most = least;
      if (sees(',')) {
        ++at_;
        skip(true);
        most = sees('}') ? -1 : number();
      }
      if (!sees('}')) fail("expected '}'");
      ++at_;
      if (most >= 0 && most < least) fail("a repetition has fewer at most than at least");
    } else {
      return;
    }
    repeat(one, least, most);
  }
  int64_t number() {
    skip(true);
    const size_t begin = at_;
    int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && value <= kMostTimes)
      value = value * 10 + (text_[at_++] - '0');
    if (at_ == begin) fail("expected a number");
    if (value > kMostTimes) fail(fmt::format("more than {} repetitions", kMostTimes));
    skip(true);
    return value;
  }
  void repeat(Sequence& one, int64_t least, int64_t most) {
    const Sequence unit = one.size() == 1 ? one : Sequence{{Symbol::rule, 0, 0, made_rule({one})}};
    one.clear();
    for (int64_t i = 0; i < least; ++i) one.push_back(unit[0]);
    if (most < 0) {  // more ::= unit more |
      const uint32_t more = made_rule({});
      rules_[more] = {{unit[0], {Symbol::rule, 0, 0, more}}, {}};
      one.push_back({Symbol::rule, 0, 0, more});
    } else if (most > least) {  // left(n) ::= unit left(n-1) |
      uint32_t left = made_rule({{unit[0]}, {}});
      for (int64_t i = least + 1; i < most; ++i) left = made_rule({{unit[0], {Symbol::rule, 0, 0, left}}, {}});
      count(static_cast<size_t>(most - least) * 3);
      one.push_back({Symbol::rule, 0, 0, left});
    }
  }

  void store() {
    for (const std::vector<Sequence>& rule : rules_) {
      std::vector<uint32_t> begins;
      for (const Sequence& one : rule) {
        begins.push_back(static_cast<uint32_t>(grammar_.symbols_.size()));
        grammar_.symbols_.insert(grammar_.symbols_.end(), one.begin(), one.end());
        grammar_.symbols_.push_back({Symbol::end, 0, 0, 0});
      }
      grammar_.rules_.push_back(std::move(begins));
    }
  }

  // Returns, for each rule, whether it can be empty.
  std::vector<bool> empty_rules() const {
    std::vector<bool> empty(rules_.size());
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < rules_.size(); ++i)
        for (const Sequence& one : rules_[i]) {
          if (empty[i] || !std::all_of(one.begin(), one.end(),
                                       [&](const Symbol& s) { return s.kind == Symbol::rule && empty[s.index]; }))
            continue;
          empty[i] = changed = true;
        }
    }
    return empty;
  }

  // Searches depth-first through the rules with which rules can begin. Repeating an empty rule is no recursion, because
  // its stack does not grow.
  void expect_no_left_recursion() const {
    const std::vector<bool> empty = empty_rules();
    enum State : uint8_t { fresh, open, done };
    std::vector<State> state(rules_.size(), fresh);
    std::vector<std::pair<uint32_t, size_t>> path;  // a rule, and the index of its next beginning
    std::vector<std::vector<uint32_t>> beginnings(rules_.size());
    for (size_t i = 0; i < rules_.size(); ++i)
      for (const Sequence& one : rules_[i])
        for (const Symbol& symbol : one) {
          if (symbol.kind != Symbol::rule) break;
          const bool last = &symbol == &one.back();
          if (!last || symbol.index != i) beginnings[i].push_back(symbol.index);
          if (!empty[symbol.index]) break;
        }
    for (uint32_t start = 0; start < rules_.size(); ++start) {
      if (state[start] != fresh) continue;
      path = {{start, 0}};
      state[start] = open;
      while (!path.empty()) {
        auto& [rule, next] = path.back();
        if (next == beginnings[rule].size()) {
          state[rule] = done;
          path.pop_back();
          continue;
        }
        const uint32_t inner = beginnings[rule][next++];
        if (state[inner] == open) throw error(used_[inner], "a rule begins with itself");
        if (state[inner] == fresh) {
          state[inner] = open;
          path.emplace_back(inner, 0);
        }
      }
    }
  }

  std::string_view text_;
  Grammar& grammar_;
  size_t at_ = 0, symbols_ = 0;
  int depth_ = 0;
  std::map<std::string, uint32_t, std::less<>> names_;
  std::vector<std::vector<Sequence>> rules_;
  std::vector<bool> defined_;
  std::vector<size_t> used_;  // position of the first use of each rule
};

Grammar::Grammar(std::string_view text) {
  if (text.size() > kGrammarBytes)
    throw Error(ErrorKind::Syntax,
                fmt::format("the grammar has {} bytes; the limit is {}", text.size(), kGrammarBytes));
  if (const auto bad = find_invalid_utf8(text))
    throw Error(ErrorKind::Syntax, fmt::format("the grammar is not UTF-8 at byte {}", *bad));
  GrammarParser(text, *this).run();
}

GrammarText::GrammarText(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {
  bool fits = true;
  for (const uint32_t begin : grammar_->rules_[grammar_->root_]) fits = expand({begin}, ways_, ends_) && fits;
  if (!fits) throw Error(ErrorKind::Usage, "the grammar is too ambiguous: too many alternatives are open at once");
}

bool GrammarText::expand(Stack first, std::vector<Stack>& ways, bool& ends) const {
  std::set<Stack> seen;
  std::vector<Stack> open = {std::move(first)};
  while (!open.empty()) {
    Stack stack = std::move(open.back());
    open.pop_back();
    if (!seen.insert(stack).second) continue;
    if (seen.size() > kClosure) return false;
    if (stack.empty()) {
      ends = true;
      continue;
    }
    const Grammar::Symbol& symbol = grammar_->symbols_[stack.back()];
    if (symbol.kind == Grammar::Symbol::bytes) {
      if (ways.size() == kWays) return false;
      if (std::find(ways.begin(), ways.end(), stack) == ways.end()) ways.push_back(std::move(stack));
      continue;
    }
    const uint32_t at = stack.back();
    stack.pop_back();
    if (symbol.kind == Grammar::Symbol::end) {
      open.push_back(std::move(stack));
      continue;
    }
    // An empty rest of a rule is not pushed, so that repetitions do not nest.
    if (grammar_->symbols_[at + 1].kind != Grammar::Symbol::end) stack.push_back(at + 1);
    if (stack.size() >= kDepth) continue;
    for (const uint32_t begin : grammar_->rules_[symbol.index]) {
      open.push_back(stack);
      open.back().push_back(begin);
    }
  }
  return true;
}

bool GrammarText::step(uint8_t byte, std::vector<Stack>& ways, bool& ends) const {
  std::vector<Stack> next;
  ends = false;
  for (Stack& stack : ways) {
    const Grammar::Symbol& symbol = grammar_->symbols_[stack.back()];
    if (byte < symbol.least || byte > symbol.most) continue;
    ++stack.back();
    if (!expand(std::move(stack), next, ends)) return false;
  }
  ways = std::move(next);
  return ends || !ways.empty();
}

bool GrammarText::append(std::string_view bytes) {
  std::vector<Stack> ways = ways_;
  bool ends = ends_;
  for (const char byte : bytes)
    if (!step(static_cast<uint8_t>(byte), ways, ends)) return false;
  ways_ = std::move(ways);
  ends_ = ends;
  return true;
}

bool GrammarText::allows(std::string_view bytes) const {
  std::vector<Stack> ways = ways_;
  bool ends = ends_;
  return std::all_of(bytes.begin(), bytes.end(),
                     [&](char byte) { return step(static_cast<uint8_t>(byte), ways, ends); });
}

std::array<bool, 256> GrammarText::next_bytes() const {
  std::array<bool, 256> next{};
  for (const Stack& stack : ways_) {
    const Grammar::Symbol& symbol = grammar_->symbols_[stack.back()];
    std::fill(next.begin() + symbol.least, next.begin() + symbol.most + 1, true);
  }
  return next;
}

}  // namespace harmonics::engine
