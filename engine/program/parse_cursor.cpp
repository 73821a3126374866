#include "engine/program/parse_cursor.hpp"

#include "engine/tensor/literal_text.hpp"

namespace harmonics::engine {

namespace {
bool is_digit(char c) { return c >= '0' && c <= '9'; }
int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
}  // namespace

template <typename Accept>
std::string_view ParseCursor::run(Accept accept) {
  skip_space();
  const size_t from = at_;
  while (at_ < text_.size() && accept(text_[at_])) ++at_;
  return text_.substr(from, at_ - from);
}

void ParseCursor::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
}

void ParseCursor::skip_lines() {
  for (skip_space(); at_ < text_.size(); skip_space()) {
    if (text_[at_] == '#')
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    else if (text_[at_] == '\n')
      ++at_;
    else
      return;
  }
}

void ParseCursor::end_line() {
  skip_space();
  if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '#')
    fail_here("expected the end of the line, found " + shown());
  skip_lines();
}

bool ParseCursor::next_is(char c) {
  skip_space();
  return at_ < text_.size() && text_[at_] == c;
}

bool ParseCursor::take(char c) {
  if (!next_is(c)) return false;
  ++at_;
  return true;
}

void ParseCursor::expect(char c) {
  if (!take(c)) fail_here(std::string("expected '") + c + "', found " + shown());
}

std::string_view ParseCursor::word() {
  skip_space();
  if (at_ == text_.size() || !is_letter(text_[at_])) return {};
  return run([](char c) { return is_letter(c) || is_digit(c); });
}

std::string_view ParseCursor::number() {
  return run([](char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '+' || c == '-'; });
}

std::string_view ParseCursor::path() {
  return run([](char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '/' || c == '-'; });
}

std::string ParseCursor::text() {
  expect('"');
  const size_t from = at_ - 1;
  std::string out;
  while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
    const char c = text_[at_++];
    if (c != '\\') {
      out += c;
      continue;
    }
    const char escape = at_ < text_.size() ? text_[at_++] : '\n';
    if (escape == '"' || escape == '\\') {
      out += escape;
    } else if (escape == 'n') {
      out += '\n';
    } else if (escape == 't') {
      out += '\t';
    } else if (escape == 'x' && at_ + 2 <= text_.size() && hex_digit(text_[at_]) >= 0 &&
               hex_digit(text_[at_ + 1]) >= 0) {
      out += static_cast<char>(hex_digit(text_[at_]) * 16 + hex_digit(text_[at_ + 1]));
      at_ += 2;
    } else {
      fail(from, "unknown escape in a string; \\\" \\\\ \\n \\t and \\xHH are known");
    }
  }
  if (at_ == text_.size() || text_[at_] != '"') fail(from, "the text is not closed");
  ++at_;
  return out;
}

std::string ParseCursor::shown() const {
  if (at_ == text_.size()) return "the end";
  if (text_[at_] == '\n') return "the end of the line";
  const auto u = static_cast<unsigned char>(text_[at_]);
  return u < 0x20 || u >= 0x7f ? "byte " + std::to_string(u) : std::string("'") + text_[at_] + "'";
}

void ParseCursor::fail(size_t from, const std::string& what, ErrorKind kind, std::vector<std::string> notes) const {
  const size_t length = at_ > from ? at_ - from : 1;
  throw SourceErrors(source_, {Error(kind, what, source_.span(from, length), std::move(notes))});
}

}  // namespace harmonics::engine
