#include "engine/language/template_lexer.hpp"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "engine/language/template_syntax.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::jinja {

namespace {

constexpr std::array<std::string_view, 6> kLongSigns = {"==", "!=", "<=", ">=", "//", "**"};
constexpr std::string_view kSigns = "()[]{}.,:|~+-*/%<>=";

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Converts line ends to line feeds and removes the last one.
std::string prepared(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i] == '\r' ? '\n' : text[i];
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

constexpr size_t kNameBytes = 128;
constexpr size_t kTokens = 32'768;  // the longest templates of models have about 5,000

class TemplateLexer {
 public:
  TemplateLexer(std::string text, const std::string& name) : text_(std::move(text)), name_(name) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) outside();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) { throw template_error(ErrorKind::Syntax, name_, here(), what); }
  Span here() const { return {line_, static_cast<uint32_t>(at_ - line_start_ + 1), 1}; }
  void add(TokenKind kind, std::string text) { add({kind, std::move(text), here()}); }
  void add(Token token) {
    if (tokens_.size() == kTokens) fail(fmt::format("it has more than {} words, signs and texts", kTokens));
    tokens_.push_back(std::move(token));
  }
  bool sees(std::string_view what) const { return std::string_view(text_).substr(at_, what.size()) == what; }
  void advance(size_t count) {
    for (; count > 0; --count, ++at_)
      if (text_[at_] == '\n') {
        ++line_;
        line_start_ = at_ + 1;
      }
  }

  // Reads text up to the next opening of a tag, and the opening.
  void outside() {
    size_t open = at_;
    for (;; ++open) {
      open = text_.find('{', open);
      if (open == std::string::npos || open + 1 == text_.size()) {
        open = text_.size();
        break;
      }
      if (std::string_view("{%#").find(text_[open + 1]) != std::string_view::npos) break;
    }
    const bool ends = open == text_.size();
    const char mark = !ends && open + 2 < text_.size() ? text_[open + 2] : ' ';
    const char what = ends ? ' ' : text_[open + 1];
    std::string data = text_.substr(at_, open - at_);
    strip_before(data, mark, !ends && what != '{');
    if (!data.empty()) add(TokenKind::data, std::move(data));
    advance(open - at_);
    if (ends) return;
    opened_ = here();
    advance(2 + (mark == '-' || mark == '+' ? 1 : 0));
    if (what == '#') return comment();
    if (what == '{') {
      add(TokenKind::begin_output, "{{");
      return inside("}}", TokenKind::end_output);
    }
    if (is_raw()) return raw();
    add(TokenKind::begin_block, "{%");
    inside("%}", TokenKind::end_block);
  }

  // Removes white space before a tag with '-', or else between the start of the line and a block.
  void strip_before(std::string& data, char mark, bool block) {
    if (mark == '-') {
      while (!data.empty() && is_blank(data.back())) data.pop_back();
    } else if (block && mark != '+') {
      const size_t line = data.rfind('\n');
      const size_t begin = line == std::string::npos ? 0 : line + 1;
      const bool from_start = line != std::string::npos || at_ == 0 || text_[at_ - 1] == '\n';
      if (from_start && std::all_of(data.begin() + static_cast<std::ptrdiff_t>(begin), data.end(), is_blank))
        data.resize(begin);
    }
  }

  // Reads the end of a tag and removes white space after it.
  void close(std::string_view end, bool block) {
    const bool strip = text_[at_] == '-', keep = text_[at_] == '+';
    advance(end.size() + (strip || keep ? 1 : 0));
    if (strip) {
      while (at_ < text_.size() && is_blank(text_[at_])) advance(1);
    } else if (block && !keep && at_ < text_.size() && text_[at_] == '\n') {
      advance(1);
    }
  }
  bool sees_end(std::string_view end) const {
    if (sees(end)) return true;
    return at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+') &&
           std::string_view(text_).substr(at_ + 1, end.size()) == end;
  }

  void comment() {
    size_t end = text_.find("#}", at_);
    if (end == std::string::npos) throw template_error(ErrorKind::Syntax, name_, opened_, "the comment has no '#}'");
    if (end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+')) --end;
    advance(end - at_);
    close("#}", true);
  }

  bool is_raw() const {
    size_t at = at_;
    while (at < text_.size() && is_blank(text_[at])) ++at;
    if (text_.compare(at, 3, "raw") != 0) return false;
    at += 3;
    while (at < text_.size() && is_blank(text_[at])) ++at;
    if (at < text_.size() && text_[at] == '-') ++at;
    return text_.compare(at, 2, "%}") == 0;
  }

  void raw() {
    while (!sees_end("%}")) advance(1);
    close("%}", true);
    size_t open = at_;
    for (;;) {
      open = text_.find("{%", open);
      if (open == std::string::npos) throw template_error(ErrorKind::Syntax, name_, opened_, "'raw' has no 'endraw'");
      size_t at = open + 2;
      const char mark = at < text_.size() ? text_[at] : ' ';
      if (mark == '-' || mark == '+') ++at;
      while (at < text_.size() && is_blank(text_[at])) ++at;
      if (text_.compare(at, 6, "endraw") == 0) {
        std::string data = text_.substr(at_, open - at_);
        strip_before(data, mark, true);
        if (!data.empty()) add(TokenKind::data, std::move(data));
        advance(at + 6 - at_);
        break;
      }
      open += 2;
    }
    while (at_ < text_.size() && is_blank(text_[at_])) advance(1);
    if (!sees_end("%}")) fail("'endraw' is not closed by '%}'");
    close("%}", true);
  }

  // Reads the tokens of an expression or statement. Inside brackets, '}}' may close two maps.
  void inside(std::string_view end, TokenKind kind) {
    std::string brackets;
    for (;;) {
      while (at_ < text_.size() && is_blank(text_[at_])) advance(1);
      if (at_ == text_.size())
        throw template_error(ErrorKind::Syntax, name_, opened_, fmt::format("this has no '{}'", end));
      if (brackets.empty() && sees_end(end)) {
        add(kind, std::string(end));
        return close(end, kind == TokenKind::end_block);
      }
      token(brackets);
    }
  }

  void token(std::string& brackets) {
    const char c = text_[at_];
    if (begins_word(c)) return word();
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return quoted(c);
    for (const std::string_view sign : kLongSigns)
      if (sees(sign)) {
        add(TokenKind::sign, std::string(sign));
        return advance(2);
      }
    if (kSigns.find(c) == std::string_view::npos)
      fail(fmt::format("{} is not valid here", shown_name(std::string_view(text_).substr(at_, 1))));
    if (c == '(' || c == '[' || c == '{') brackets += c;
    if (c == ')' || c == ']' || c == '}') {
      const char open = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (brackets.empty() || brackets.back() != open) fail(fmt::format("there is no '{}' for this '{}'", open, c));
      brackets.pop_back();
    }
    if (brackets.size() > static_cast<size_t>(kSyntaxDepth))
      fail(fmt::format("brackets are nested more than {} deep", kSyntaxDepth));
    add(TokenKind::sign, std::string(1, c));
    advance(1);
  }

  void word() {
    size_t end = at_;
    while (end < text_.size() && (begins_word(text_[end]) || is_digit(text_[end]))) ++end;
    if (end - at_ > kNameBytes) fail(fmt::format("a name has more than {} bytes", kNameBytes));
    add(TokenKind::name, text_.substr(at_, end - at_));
    advance(end - at_);
  }

  void number() {
    size_t end = at_;
    const auto digits = [&] {
      while (end < text_.size() && (is_digit(text_[end]) || text_[end] == '_')) ++end;
    };
    digits();
    bool real = false;
    if (end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1])) {
      real = true;
      ++end;
      digits();
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
      if (exponent < text_.size() && is_digit(text_[exponent])) {
        real = true;
        end = exponent;
        digits();
      }
    }
    std::string text = text_.substr(at_, end - at_);
    std::erase(text, '_');
    add(real ? TokenKind::real : TokenKind::integer, std::move(text));
    advance(end - at_);
  }

  void quoted(char quote) {
    const Span begin = here();
    advance(1);
    std::string out;
    for (;;) {
      if (at_ == text_.size()) throw template_error(ErrorKind::Syntax, name_, begin, "the text has no closing quote");
      const char c = text_[at_];
      advance(1);
      if (c == quote) break;
      if (c != '\\' || at_ == text_.size()) {
        out += c;
        continue;
      }
      escape(out);
    }
    add({TokenKind::text, std::move(out), begin});
  }

  void escape(std::string& out) {
    const char c = text_[at_];
    advance(1);
    constexpr std::string_view kFrom = "ntrbfva0\\'\"", kTo("\n\t\r\b\f\v\a\0\\'\"", 11);
    if (const size_t known = kFrom.find(c); known != std::string_view::npos) {
      out += kTo[known];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      code_point(out, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c != '\n') {
      out += '\\';  // as in Python, unknown escapes stay unchanged
      out += c;
    }
  }

  void code_point(std::string& out, size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i, advance(1)) {
      const size_t digit =
          at_ < text_.size() ? std::string_view("0123456789abcdefABCDEF").find(text_[at_]) : std::string_view::npos;
      if (digit == std::string_view::npos) fail(fmt::format("an escape needs {} hexadecimal digits", digits));
      value = value * 16 + static_cast<uint32_t>(digit < 16 ? digit : digit - 6);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fail("an escape is not a character");
    append_utf8(out, value);
  }

  static void append_utf8(std::string& out, uint32_t value) {
    const auto byte = [&](uint32_t v) { out += static_cast<char>(v); };
    if (value < 0x80) return byte(value);
    if (value < 0x800) {
      byte(0xC0 | value >> 6);
    } else {
      if (value < 0x10000) {
        byte(0xE0 | value >> 12);
      } else {
        byte(0xF0 | value >> 18);
        byte(0x80 | (value >> 12 & 0x3F));
      }
      byte(0x80 | (value >> 6 & 0x3F));
    }
    byte(0x80 | (value & 0x3F));
  }

  std::string text_;
  const std::string& name_;
  std::vector<Token> tokens_;
  size_t at_ = 0, line_start_ = 0;
  uint32_t line_ = 1;
  Span opened_;
};

}  // namespace

Error template_error(ErrorKind kind, const std::string& name, Span at, const std::string& what) {
  return Error(kind, fmt::format("{}, line {}, column {}: {}", name, at.line, at.column, what));
}

std::vector<Token> tokens_of_template(std::string_view text, const std::string& name) {
  if (text.size() > kTemplateBytes)
    throw Error(ErrorKind::Syntax, fmt::format("{} has {} bytes; the limit is {}", name, text.size(), kTemplateBytes));
  if (const auto bad = find_invalid_utf8(text))
    throw Error(ErrorKind::Syntax, fmt::format("{} is not UTF-8 at byte {}", name, *bad));
  return TemplateLexer(prepared(text), name).run();
}

}  // namespace harmonics::engine::jinja
