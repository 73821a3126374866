#include "dsl/hmx/reader.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

#include "dsl/hmx/typos.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::hmx {

namespace {

constexpr size_t kLongestQuote = 40;

std::string code_point_name(char32_t value) {
  char name[16];
  std::snprintf(name, sizeof name, "U+%04X", static_cast<unsigned>(value));
  return name;
}

// Adds the words of a text. Words joined by '-' are also added with '_', as the error message suggests.
void add_words(std::string_view text, std::set<std::string, std::less<>>& words) {
  std::string joined;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_identifier_character(text[end])) ++end;
    if (end > at) {
      if (words.size() >= kMostUnreadWords) return;
      const std::string word(text.substr(at, end - at));
      words.insert(word);
      joined += word;
      if (end + 1 < text.size() && text[end] == '-' && is_identifier_character(text[end + 1])) {
        joined += '_';
      } else {
        words.insert(std::exchange(joined, {}));
      }
    }
    at = end + 1;
  }
}

}  // namespace

std::string lowered(std::string_view word) {
  std::string out(word);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::string quoted(std::string_view text) {
  std::string out = "'";
  for (size_t at = 0; at < text.size();) {
    if (at > kLongestQuote) return out + "...'";
    const CodePoint point = decode_utf8(text, at);
    if (is_unprintable(point.value)) {
      out += code_point_name(point.value);
    } else {
      out += text.substr(at, point.length);
    }
    at += point.length;
  }
  return out + "'";
}

std::string_view Reader::text(size_t begin, size_t end) const {
  return std::string_view(source_.text()).substr(begin, end - begin);
}

void Reader::complain(ErrorKind kind, Span span, const std::string& message, Notes notes) {
  unread_.any = true;
  ++complaints_;
  for (Error& error : errors_) {
    if (error.span().line != span.line || error.span().column != span.column) continue;
    if (kind == ErrorKind::Syntax && error.kind() != kind) error = Error(kind, message, span, std::move(notes));
    return;
  }
  errors_.emplace_back(kind, message, span, std::move(notes));
  if (errors_.size() < kMostErrors) return;
  errors_.back().note("note: stopped after " + std::to_string(kMostErrors) + " errors");
  throw Stop{};
}

void Reader::fail(Span span, const std::string& message, Notes notes) {
  complain(ErrorKind::Syntax, span, message, std::move(notes));
  throw Recover{};
}

std::string Reader::found() const { return lexer.at_end() ? "the end of the file" : quoted(lexer.peek().text); }

void Reader::unexpected(const std::string& what, Notes notes) {
  if (const auto typo = find_typo(lexer)) fail(here(), typo->message, {typo->remedy});
  // At the end of a line, the error is at the gap and not at the next token.
  const bool gap = lexer.at_end() || (lexer.on_new_line() && (lexer.at("}") || lexer.at_reserved()));
  fail(gap ? behind_previous() : here(), "expected " + what + ", found " + found(), std::move(notes));
}

Name Reader::expect_name(const std::string& what, Notes notes) {
  count_node();
  if (const auto token = lexer.name()) return {std::string(token->text), span(*token)};
  if (lexer.at_reserved() && !lexer.on_new_line()) {
    const Token word = lexer.peek();
    lexer.skip();  // otherwise the rest is parsed as a statement
    fail(span(word), quoted(word.text) + " is a reserved word and cannot be a name",
         {"choose another name, for example '" + std::string(word.text) + "_1'"});
  }
  const std::string_view word = lexer.peek_word();
  if (!word.empty() && word[0] <= '9' && word.find_first_not_of("0123456789") != std::string_view::npos) {
    fail(here(), "a name cannot begin with a digit: " + quoted(word),
         {"put a letter first: 'n" + std::string(word) + "'"});
  }
  if (lexer.at("\"") && lexer.peek().text.size() > 2 && lexer.peek().text.back() == '"') {
    const std::string_view text = lexer.peek().text;
    fail(here(), "a name takes no quotes",
         {"write " + std::string(text.substr(1, text.size() - 2)) + " instead of " + std::string(text)});
  }
  unexpected(what, std::move(notes));
}

bool Reader::at_hyphenated_name() const {
  const std::string_view rest = lexer.rest();
  return lexer.touches_previous() && rest.size() > 1 && rest[0] == '-' && is_identifier_character(rest[1]);
}

void Reader::refuse_hyphenated_name() {
  const std::string_view text = source_.text();
  const auto byte = [&](size_t at) { return at < text.size() ? text[at] : '\0'; };
  size_t begin = lexer.previous_end(), end = lexer.position();
  while (begin > 0 && is_identifier_character(text[begin - 1])) --begin;
  while (is_identifier_character(byte(end)) || (byte(end) == '-' && is_identifier_character(byte(end + 1)))) ++end;
  std::string name(this->text(begin, end)), remedy = name;
  std::replace(remedy.begin(), remedy.end(), '-', '_');
  while (lexer.position() < end) lexer.skip();
  fail(span(begin, end), "'-' in the name " + quoted(name), {"write '" + remedy + "'"});
}

bool Reader::begins_statement() const {
  if (lexer.at("}") || lexer.at_end() || lexer.at_reserved()) return true;
  Lexer ahead = lexer;
  return ahead.name() && !ahead.at("=") && !ahead.peek_arrow().text.empty();
}

void Reader::end_statement(const std::string& what) {
  if (lexer.accept(";")) return;
  const std::string message = "expected ';' after " + what;
  if (!find_typo(lexer) && (lexer.on_new_line() || begins_statement())) {
    complain(ErrorKind::Syntax, behind_previous(), message);
    return;
  }
  unexpected("';' after " + what);
}

int64_t Reader::whole_number(const Token& digits) {
  int64_t value = 0;
  const auto result = std::from_chars(digits.text.data(), digits.text.data() + digits.text.size(), value);
  if (result.ec == std::errc()) return value;
  complain(ErrorKind::Type, span(digits), "number out of range: " + quoted(digits.text),
           {"the largest whole number is 9223372036854775807"});
  return 1;
}

void Reader::skip_block() {
  size_t depth = 0;
  while (!lexer.at_end() && !lexer.at_word("harmonic")) {
    depth += lexer.at("{");
    const bool closes = lexer.at("}");
    lexer.skip();
    if (closes && --depth == 0) return;
  }
}

void Reader::recover(size_t start) {
  const bool shape_open = std::exchange(in_shape, false), declaration_open = std::exchange(in_declaration, false);
  bool moved = lexer.position() > start;
  while (!lexer.at_end()) {
    if (lexer.accept(";")) return;
    if (lexer.at("}")) {
      // On the same line it closes the open shape, or one whose '{' is missing; otherwise it closes the block.
      Lexer ahead = lexer;
      ahead.skip();
      const bool ends_shape = shape_open || (declaration_open && ahead.at(";"));
      if (!ends_shape || lexer.on_new_line()) return doubt_blocks();
    } else if (moved && lexer.at_reserved()) {
      return;
    }
    if (lexer.at("{")) {
      skip_block();
      if (lexer.on_new_line()) return;
    } else {
      lexer.skip();
    }
    moved = true;
  }
}

void Reader::leave_out(const Lexer& start, bool kept) {
  const size_t begin = start.position(), end = std::max(begin, lexer.previous_end());
  const std::string_view text = this->text(begin, end);
  Lexer behind = start;
  const std::string first(behind.peek_word());
  behind.skip();
  const bool is_flow = !is_reserved(first) && (!behind.peek_arrow().text.empty() || !start.peek_arrow().text.empty());
  const bool is_producer = first == "producer";
  const bool is_known = is_flow || first == "layer" || first == "consumer" || first == "cycle" || first == "if";
  const bool producers = !(is_known || kept) ||
                         lowered(text.substr(std::min(first.size(), text.size()))).find("prod") != std::string::npos;
  unread_.producers = unread_.producers || producers;
  unread_.ratios = unread_.ratios || ((producers || is_producer) && text.find('/') != std::string_view::npos);
  add_words(text, unread_.words);
}

void Reader::count_node() {
  if (++nodes_ <= kMostNodes) return;
  complain(ErrorKind::Syntax, here(), "the file holds more than " + std::to_string(kMostNodes) + " names and values",
           {"write repeated structure as a layer of a plugin (docs/plugins.md)"});
  throw Stop{};
}

}  // namespace harmonics::engine::hmx
