#include "engine/base/source_text.hpp"

#include <algorithm>
#include <utility>

#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr size_t kWidestExcerpt = 200;  // bytes of a line in messages

// The displayed part of a line, with unprintable characters replaced, and the marks below it.
struct Excerpt {
  std::string text, marks;
};

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

Excerpt excerpt(std::string_view line, size_t begin, size_t length) {
  begin = std::min(begin, line.size());
  const size_t end = std::min(line.size(), begin + length);
  size_t from = 0, to = line.size();
  if (line.size() > kWidestExcerpt) {
    from = begin > kWidestExcerpt / 2 ? begin - kWidestExcerpt / 2 : 0;
    to = std::min(line.size(), from + kWidestExcerpt);
    while (from > 0 && !starts_character(line[from])) --from;
    while (to < line.size() && !starts_character(line[to])) ++to;
  }
  Excerpt shown;
  if (from > 0) shown = {"...", "   "};
  bool marked = false;
  const auto mark = [&] {
    shown.marks += marked ? '~' : '^';
    marked = true;
  };
  for (size_t at = from; at < to;) {
    const CodePoint point = decode_utf8(line, at);
    const bool tab = point.value == '\t';
    const bool safe = point.valid && (tab || !is_unprintable(point.value));
    shown.text += safe ? line.substr(at, point.length) : "?";
    const int width = safe ? display_width(point.value) : 1;
    if (at >= begin && at < end) {
      for (int i = 0; i < width; ++i) mark();
    } else if (at < begin) {
      shown.marks += tab ? "\t" : std::string(static_cast<size_t>(width), ' ');
    }
    at += point.length;
  }
  if (to < line.size()) shown.text += "...";
  if (!marked) mark();
  return shown;
}

}  // namespace

SourceText::SourceText(std::string name, std::string text) : name_(std::move(name)), text_(std::move(text)) {
  line_starts_.push_back(0);
  for (size_t at = text_.find('\n'); at != std::string::npos; at = text_.find('\n', at + 1)) {
    line_starts_.push_back(at + 1);
  }
}

Span SourceText::span(size_t offset, size_t length) const {
  offset = std::min(offset, text_.size());
  length = std::min(length, text_.size() - offset);
  const auto next = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  const auto number = static_cast<uint32_t>(next - line_starts_.begin());
  return {number, static_cast<uint32_t>(offset - line_starts_[number - 1] + 1), static_cast<uint32_t>(length)};
}

std::string_view SourceText::line(uint32_t number) const {
  if (number == 0 || number > line_starts_.size()) return {};
  const size_t begin = line_starts_[number - 1];
  const size_t end = number < line_starts_.size() ? line_starts_[number] - 1 : text_.size();
  std::string_view line(text_.data() + begin, end - begin);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

std::string SourceText::place(Span span) const {
  if (span.line == 0) return name_;
  return name_ + ":" + std::to_string(span.line) + ":" + std::to_string(span.column);
}

std::string SourceText::render(const Error& error, std::string_view severity) const {
  const Span span = error.span();
  std::string out = place(span);
  if (!out.empty()) out += ": ";
  out.append(severity).append(": ").append(error.what()).append("\n");
  if (span.line > 0 && span.line <= line_starts_.size()) {
    const size_t begin = span.column > 0 ? span.column - 1 : 0;
    const Excerpt shown = excerpt(line(span.line), begin, std::max<size_t>(1, span.length));
    out.append(shown.text).append("\n").append(shown.marks).append("\n");
  }
  for (const std::string& note : error.notes()) {
    if (note.rfind("note: ", 0) != 0) out += "help: ";
    out.append(note).append("\n");
  }
  return out;
}

namespace {

std::string report(const SourceText& source, const std::vector<Error>& errors) {
  std::string out;
  for (const Error& error : errors) out += source.render(error);
  return out;
}

std::string report_of(const std::vector<TextErrors>& texts) {
  std::string out;
  for (const TextErrors& text : texts) out += report(*text.source, text.errors);
  return out;
}

}  // namespace

SourceErrors::SourceErrors(const SourceText& source, std::vector<Error> errors)
    : Error(errors.empty() ? ErrorKind::Internal : errors.front().kind(), report(source, errors),
            errors.empty() ? Span{} : errors.front().span()),
      errors_(std::move(errors)),
      files_(errors_.size(), source.name()) {}

SourceErrors::SourceErrors(std::vector<TextErrors> texts)
    : Error(texts.front().errors.front().kind(), report_of(texts), texts.front().errors.front().span()) {
  for (const TextErrors& text : texts)
    for (const Error& error : text.errors) {
      errors_.push_back(error);
      files_.push_back(text.source->name());
    }
  texts_ = std::move(texts);
}

void throw_texts(std::vector<TextErrors> texts) {
  std::erase_if(texts, [](const TextErrors& text) { return text.errors.empty(); });
  if (texts.empty()) return;
  const std::vector<Error>& first = texts.front().errors;
  if (texts.size() == 1 && first.size() == 1 && first.front().span().line == 0) throw first.front();
  for (TextErrors& text : texts) text.errors = in_order_of_text(std::move(text.errors));
  throw SourceErrors(std::move(texts));
}

void throw_errors(const SourceText* source, std::vector<Error> errors) {
  if (errors.size() == 1 || !source) throw errors.front();
  throw SourceErrors(*source, in_order_of_text(std::move(errors)));
}

std::vector<Error> in_order_of_text(std::vector<Error> errors) {
  std::stable_sort(errors.begin(), errors.end(), [](const Error& a, const Error& b) {
    return std::pair(a.span().line, a.span().column) < std::pair(b.span().line, b.span().column);
  });
  return errors;
}

}  // namespace harmonics::engine
