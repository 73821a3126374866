// Named source texts, and errors that are shown in them with a caret.
#pragma once

#include <memory>
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

  // Returns "name:9:22", or only the name if the span has no position. The name is empty for the command line.
  std::string place(Span span) const;
  // Returns "name:9:22: error: message", the line, a caret with tildes, and one line per note, ending with a newline.
  // Notes are remedies and get the prefix "help: ", unless they begin with "note: ".
  std::string render(const Error& error, std::string_view severity = "error") const;

 private:
  std::string name_, text_;
  std::vector<size_t> line_starts_;
};

struct TextErrors {
  std::shared_ptr<const SourceText> source;
  std::vector<Error> errors;
};

// Errors of one or several texts, thrown together. what() is the rendered report of all.
class SourceErrors : public Error {
 public:
  SourceErrors(const SourceText& source, std::vector<Error> errors);
  explicit SourceErrors(std::vector<TextErrors> texts);  // at least one error
  const std::vector<Error>& errors() const { return errors_; }
  // The name of each error's text.
  const std::vector<std::string>& files() const { return files_; }
  // The argument of the second constructor; empty after the first.
  const std::vector<TextErrors>& texts() const { return texts_; }

 private:
  std::vector<Error> errors_;
  std::vector<std::string> files_;
  std::vector<TextErrors> texts_;
};

// Throws a single error unchanged, and several as SourceErrors sorted by position. If `source` is null, it throws the
// first error.
[[noreturn]] void throw_errors(const SourceText* source, std::vector<Error> errors);

// Throws all errors as SourceErrors, grouped by text and sorted by position. A single error without a position is
// thrown unchanged. Returns if there are no errors.
void throw_texts(std::vector<TextErrors> texts);

// Sorts errors by position. The sort is stable.
std::vector<Error> in_order_of_text(std::vector<Error> errors);

}  // namespace harmonics::engine
