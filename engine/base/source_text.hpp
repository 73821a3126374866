// A named text, and errors shown in it with a caret.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <harmonics/error.hpp>

namespace harmonics::engine {

class SourceText {
 public:
  SourceText(std::string name, std::string text);
  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }
  // Returns the line and column of a byte offset.
  Span span(size_t offset, size_t length) const;
  std::string_view line(uint32_t number) const;  // 1-based, without line end

  // Returns "name:9:22", or only the name if the span has no position.
  std::string place(Span span) const;
  // Returns "name:9:22: error: message" + the line + caret and tildes + one line per note, ending with a newline. A
  // note is a remedy and printed after "help: ", unless it begins with "note: ".
  std::string render(const Error& error, std::string_view severity = "error") const;

 private:
  std::string name_, text_;
  std::vector<size_t> line_starts_;
};

// Errors collected from one text, thrown together. what() is the whole rendered report.
class SourceErrors : public Error {
 public:
  SourceErrors(const SourceText& source, std::vector<Error> errors);
  const std::vector<Error>& errors() const { return errors_; }

 private:
  std::vector<Error> errors_;
};

// Throws the only error as it is, or all as SourceErrors in order of the text. Without a text (null) it throws the
// first.
[[noreturn]] void throw_errors(const SourceText* source, std::vector<Error> errors);

// Sorts errors from top to bottom. Errors at one position keep their order.
std::vector<Error> in_order_of_text(std::vector<Error> errors);

}  // namespace harmonics::engine
