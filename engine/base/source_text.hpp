// A text with its name, and errors shown in it with a caret.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <harmonics/error.hpp>

namespace harmonics {

class SourceText {
 public:
  SourceText(std::string name, std::string text);
  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }
  // Place of a byte offset.
  Span span(size_t offset, size_t length) const;
  std::string_view line(uint32_t number) const;  // 1-based, without its end

  // "name:9:22", or the name alone when the span has no place.
  std::string place(Span span) const;
  // "name:9:22: error: message" + the line + caret and tildes + one line per note; ends with a newline. A note is a
  // remedy and printed after "help: ", unless it begins with "note: ".
  std::string render(const Error& error, std::string_view severity = "error") const;

 private:
  std::string name_, text_;
  std::vector<size_t> line_starts_;
};

// Errors collected from one text, rendered; thrown together. what() is the whole report.
class SourceErrors : public Error {
 public:
  SourceErrors(const SourceText& source, std::vector<Error> errors);
  const std::vector<Error>& errors() const { return errors_; }

 private:
  std::vector<Error> errors_;
};

// As a reader finds them, from top to bottom; those of one place keep their order.
std::vector<Error> in_order_of_text(std::vector<Error> errors);

}  // namespace harmonics
