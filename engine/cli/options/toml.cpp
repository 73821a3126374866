#include "engine/cli/options/toml.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "formats/utf8.hpp"

namespace harmonics::engine::cli {

namespace {

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

// Removes underscores between digits, as in "1_000".
std::string without_underscores(std::string_view word) {
  std::string digits;
  for (size_t i = 0; i < word.size(); ++i) {
    const bool between = word[i] == '_' && i > 0 && i + 1 < word.size() && is_bare(word[i - 1]) && word[i - 1] != '_' &&
                         is_bare(word[i + 1]);
    if (!between) digits += word[i];
  }
  return digits;
}

template <typename T, typename... How>
bool read_number(std::string_view digits, T& value, How... how) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, how...);
  return error == std::errc() && end == digits.data() + digits.size();
}

std::string utf8_of(uint32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0)};
}

// Returns the number in decimal, or "" if the word is not a 64-bit number.
std::string decimal_of(std::string_view word) {
  const std::string written = without_underscores(word);
  std::string_view digits = written;
  if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
  int64_t whole = 0;
  for (const auto& [prefix, base] : {std::pair<std::string_view, int>{"0x", 16}, {"0o", 8}, {"0b", 2}})
    if (digits.substr(0, 2) == prefix)
      return digits[2 < digits.size() ? 2 : 0] != '-' && read_number(digits.substr(2), whole, base)
                 ? std::to_string(whole)
                 : "";
  if (read_number(digits, whole)) return std::to_string(whole);
  double real = 0;
  return read_number(digits, real, std::chars_format::general) ? fmt::format("{}", real) : "";
}

class Reader {
 public:
  Reader(const std::string& path, const std::string& text) : path_(path), text_(text) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") text_.remove_prefix(3);
  }

  std::vector<TomlTable> run() {
    if (const std::optional<size_t> bad = find_invalid_utf8(text_)) {
      line_ += static_cast<size_t>(std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(*bad), '\n'));
      refuse("the text is not UTF-8", "save the file as UTF-8 text");
    }
    tables_.emplace_back();
    for (skip_lines(); at_ < text_.size(); skip_lines()) {
      if (text_[at_] == '[')
        header();
      else
        entry();
      end_line();
    }
    return std::move(tables_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, std::string remedy) const {
    throw Error(ErrorKind::Syntax, fmt::format("{}:{}: {}", path_, line_, what), {}, {std::move(remedy)});
  }

  char peek(size_t further = 0) const { return at_ + further < text_.size() ? text_[at_ + further] : '\n'; }
  bool at_end_of_line() const { return peek() == '\n' || (peek() == '\r' && peek(1) == '\n'); }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    if (peek() != '#') return;
    while (!at_end_of_line()) ++at_;
  }

  void skip_lines() {
    for (skip_blanks(); at_ < text_.size() && at_end_of_line(); skip_blanks()) {
      at_ = std::min(text_.size(), at_ + (text_[at_] == '\r' ? 2 : 1));  // a file may end with CR
      ++line_;
    }
  }

  void end_line() {
    skip_blanks();
    if (!at_end_of_line())
      refuse(fmt::format("'{}' after the setting of this line", rest()), "one setting a line: batch = 128");
  }

  // Returns the rest of the line for messages.
  std::string rest() const { return printable(text_.substr(at_, text_.find_first_of("\r\n", at_) - at_)); }

  void header() {
    ++at_;
    skip_blanks();
    if (peek() == '[') refuse("a list of tables", "settings have none: [run] begins those of 'harmonics run'");
    const std::string name = key("a table without a name", "[run] begins the settings of 'harmonics run'");
    skip_blanks();
    if (peek() == '.')
      refuse(fmt::format("a table within the table '{}'", printable(name)), "settings have tables of one name: [run]");
    if (peek() != ']')
      refuse(fmt::format("'{}' instead of the ']' of a table", rest()), "[run] begins the settings of 'harmonics run'");
    ++at_;
    const auto same =
        std::find_if(tables_.begin() + 1, tables_.end(), [&](const TomlTable& t) { return t.name == name; });
    if (same != tables_.end())
      refuse(fmt::format("the table '{}' begins again", printable(name)),
             fmt::format("it began in line {}: merge its settings", same->line));
    current_ = tables_.size();
    tables_.push_back({name, line_, {}});
  }

  void entry() {
    const size_t line = line_;
    size_t into = current_;
    std::string name = key("a line that is not a setting",
                           "settings are written as in TOML: batch = 128, and [run] before those of one verb");
    skip_blanks();
    if (peek() == '.' && into == 0) {
      ++at_;
      skip_blanks();
      into = table_of(name);
      name = key("a key that ends in a dot", "run.batch = 128 is the batch of 'harmonics run'");
      skip_blanks();
    }
    if (peek() == '.')
      refuse(fmt::format("'{}' is not a table of settings", printable(name)),
             "run.batch = 128, before the first table, is the batch of 'harmonics run'");
    if (peek() != '=')
      refuse(fmt::format("'{}' is followed by no '='", printable(name)),
             "settings are written as in TOML: batch = 128, and [run] before those of one verb");
    ++at_;
    skip_blanks();
    for (const TomlEntry& e : tables_[into].entries)
      if (e.key == name)
        refuse(fmt::format("'{}' is set twice", printable(name)),
               fmt::format("it is set in line {} too: remove one", e.line));
    TomlEntry e{std::move(name), {}, peek() == '[', line};
    if (e.list)
      list(e.values);
    else
      e.values.push_back(value());
    tables_[into].entries.push_back(std::move(e));
  }

  // Returns the index of a table, which is created on first use.
  size_t table_of(const std::string& name) {
    for (size_t i = 1; i < tables_.size(); ++i)
      if (tables_[i].name == name) return i;
    tables_.push_back({name, line_, {}});
    return tables_.size() - 1;
  }

  std::string key(const char* missing, const char* remedy) {
    if (peek() == '"' || peek() == '\'') return quoted();
    const size_t from = at_;
    while (at_ < text_.size() && is_bare(text_[at_])) ++at_;
    if (static_cast<unsigned char>(peek()) >= 0x80)
      refuse("a non-ASCII character outside a string", "names are those of verbs and flags; write strings in quotes");
    if (at_ == from) refuse(missing, remedy);
    return std::string(text_.substr(from, at_ - from));
  }

  void list(std::vector<TomlValue>& values) {
    const size_t opened = line_;
    for (++at_;;) {
      skip_lines();
      if (peek() == ']') break;
      if (at_ >= text_.size()) refuse(fmt::format("the list of line {} does not end", opened), "close it with ']'");
      values.push_back(value());
      skip_lines();
      if (peek() == ',')
        ++at_;
      else if (peek() != ']')
        refuse(fmt::format("'{}' instead of the ',' or ']' of a list", rest()),
               "lists are written [\"f1\", \"topk(3)\"]");
    }
    ++at_;
  }

  TomlValue value() {
    if (peek() == '"' || peek() == '\'') return {TomlValue::Kind::text, quoted()};
    if (peek() == '[') refuse("a list within a list", "values of a setting are strings, numbers, true or false");
    if (peek() == '{')
      refuse("a table in one line", "write [run] on a separate line: it begins the settings of 'harmonics run'");
    const size_t from = at_;
    while (at_ < text_.size() && std::string_view(" \t\r\n,]#").find(text_[at_]) == std::string_view::npos) ++at_;
    const std::string_view word = text_.substr(from, at_ - from);
    if (word == "true" || word == "false") return {TomlValue::Kind::flag, std::string(word)};
    if (std::string number = decimal_of(word); !number.empty()) return {TomlValue::Kind::number, std::move(number)};
    if (word.empty()) refuse("no value after the '='", "write strings in quotes: save = \"model.safetensors\"");
    refuse(fmt::format("'{}' is not a string, a number, true or false", printable(word)),
           "write strings in quotes: save = \"model.safetensors\"");
  }

  std::string quoted() {
    const char quote = peek();
    if (peek(1) == quote && peek(2) == quote)
      refuse("a string over several lines", "use one quote on each side: settings have one line");
    std::string text;
    for (++at_; peek() != quote; ++at_) {
      if (at_ >= text_.size() || at_end_of_line())
        refuse("a string does not end", fmt::format("close it with {}", quote));
      if (peek() == '\\' && quote == '"')
        escape(text);
      else if ((static_cast<unsigned char>(peek()) < 0x20 && peek() != '\t') || peek() == 0x7F)
        refuse("a control character in a string", "write it as \\u and four hexadecimal digits, in \"...\"");
      else
        text += peek();
    }
    ++at_;
    return text;
  }

  // Parses an escape. Moves from the backslash to the last character of the escape.
  void escape(std::string& text) {
    constexpr std::string_view kLetters = "btnfr\"\\", kMeant = "\b\t\n\f\r\"\\";
    ++at_;
    if (const size_t i = kLetters.find(peek()); i != std::string_view::npos) return void(text += kMeant[i]);
    const size_t digits = peek() == 'u' ? 4 : peek() == 'U' ? 8 : 0;
    uint32_t code = 0;
    const std::string_view hex = text_.substr(std::min(at_ + 1, text_.size()), digits);
    const bool right = digits > 0 && hex.size() == digits && read_number(hex, code, 16) && code > 0 &&
                       code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    if (!right)
      refuse(fmt::format("'\\{}' is not an escape sequence of a string", printable(text_.substr(at_), 1)),
             "write a backslash twice, or the string as '...'");
    text += utf8_of(code);
    at_ += digits;
  }

  std::string path_;
  std::string_view text_;
  size_t at_ = 0, line_ = 1, current_ = 0;
  std::vector<TomlTable> tables_;
};

}  // namespace

std::vector<TomlTable> parse_toml(const std::string& path, const std::string& text) { return Reader(path, text).run(); }

}  // namespace harmonics::engine::cli
