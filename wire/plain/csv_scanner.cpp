#include "wire/plain/csv_scanner.hpp"

#include <algorithm>
#include <array>

#include <harmonics/error.hpp>

namespace harmonics {

char most_frequent_delimiter(std::string_view text) {
  constexpr std::string_view offered = ",\t;|";
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(" \r\n"), text.size()));
  std::array<size_t, offered.size()> counts{};
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '\n' || c == '\r') break;
    if (const size_t at = offered.find(c); at < offered.size()) ++counts[at];
  }
  return offered[static_cast<size_t>(std::max_element(counts.begin(), counts.end()) - counts.begin())];
}

CsvScanner::CsvScanner(const std::string& name, std::string_view text, char delimiter)
    : name_(name), text_(text), delimiter_(delimiter) {
  if (text_.substr(0, 3) == "\xEF\xBB\xBF") at_ = 3;
}

void CsvScanner::fail(size_t line, const std::string& what, const std::string& remedy) const {
  throw Error(ErrorKind::Stream, "'" + name_ + "' line " + std::to_string(line) + ": " + what + "; " + remedy);
}

void CsvScanner::pass_blank_lines() {
  while (at_ < text_.size()) {
    size_t end = at_;
    while (end < text_.size() && (text_[end] == ' ' || (text_[end] == '\t' && delimiter_ != '\t'))) ++end;
    if (end < text_.size() && text_[end] != '\n' && text_[end] != '\r') return;
    at_ = end;
    pass_line_end();
  }
}

void CsvScanner::pass_line_end() {
  if (at_ == text_.size()) return;
  const char c = text_[at_++];
  if (c == '\r' && at_ < text_.size() && text_[at_] == '\n') ++at_;
  ++line_;
}

bool CsvScanner::next(std::vector<std::string_view>& cells) {
  cells.clear();
  unescaped_.clear();
  pass_blank_lines();
  if (at_ == text_.size()) return false;
  row_line_ = line_;
  cells.push_back(cell());
  while (!at_row_end()) {
    ++at_;  // the delimiter
    cells.push_back(cell());
  }
  pass_line_end();
  return true;
}

std::string_view CsvScanner::cell() {
  size_t start = at_;
  while (start < text_.size() && text_[start] == ' ') ++start;
  if (start == text_.size() || text_[start] != '"') return plain_cell();
  at_ = start + 1;
  return quoted_cell();
}

std::string_view CsvScanner::plain_cell() {
  // Local copies: a store to at_ per character costs more than the comparisons.
  const char* const first = text_.data();
  const char* const last = first + text_.size();
  const char delimiter = delimiter_;
  const char* end = first + at_;
  const char* start = end;
  while (end != last && *end != delimiter && *end != '\n' && *end != '\r' && *end != '\0') ++end;
  at_ = static_cast<size_t>(end - first);
  if (end != last && *end == '\0')
    fail(line_, "there is a zero byte at byte " + std::to_string(at_),
         "this is not text; UTF-16 must be converted to UTF-8");
  while (start < end && *start == ' ') ++start;
  while (start < end && end[-1] == ' ') --end;
  return {start, static_cast<size_t>(end - start)};
}

std::string_view CsvScanner::quoted_cell() {
  const size_t first_line = line_, start = at_;
  std::string* copy = nullptr;
  size_t piece = start;
  while (true) {
    const size_t quote = text_.find('"', at_);
    if (quote == std::string_view::npos)
      fail(first_line, "a quoted cell has no closing '\"'", "close it, or write a quote inside quotes twice");
    line_ += static_cast<size_t>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                            text_.begin() + static_cast<std::ptrdiff_t>(quote), '\n'));
    at_ = quote + 1;
    if (at_ == text_.size() || text_[at_] != '"') break;
    if (!copy) copy = &unescaped_.emplace_back();
    copy->append(text_.substr(piece, at_ - piece));
    piece = ++at_;
  }
  const std::string_view rest = text_.substr(piece, at_ - 1 - piece);
  if (copy) copy->append(rest);
  while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  if (!at_row_end() && text_[at_] != delimiter_)
    fail(line_, std::string("found '") + text_[at_] + "' after a closing '\"'",
         "a quoted cell ends before '" + (delimiter_ == '\t' ? std::string("tab") : std::string(1, delimiter_)) +
             "' or the end of the line; write a quote inside quotes twice");
  const std::string_view value = copy ? std::string_view(*copy) : rest;
  if (value.find('\0') != std::string_view::npos)
    fail(first_line, "there is a zero byte in a quoted cell", "this is not text");
  return value;
}

}  // namespace harmonics
