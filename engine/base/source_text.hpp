// A named text, and errors shown in it with a caret.
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

  // Returns "name:9:22", or only the name if the span has no position. A text may have no name: the command line.
  std::string place(Span span) const;
  // Returns "name:9:22: error: message" + the line + caret and tildes + one line per note, ending with a newline. A
  // note is a remedy and printed after "help: ", unless it begins with "note: ".
  std::string render(const Error& error, std::string_view severity = "error") const;

 private:
  std::string name_, text_;
  std::vector<size_t> line_starts_;
};

struct TextErrors {
  std::shared_ptr<const SourceText> source;
  std::vector<Error> errors;
};

// Errors collected from one text or several, thrown together. what() is the whole rendered report.
class SourceErrors : public Error {
 public:
  SourceErrors(const SourceText& source, std::vector<Error> errors);
  explicit SourceErrors(std::vector<TextErrors> texts);  // at least one error
  const std::vector<Error>& errors() const { return errors_; }
  // The name of the text of each error.
  const std::vector<std::string>& files() const { return files_; }
  // As given to the second constructor; empty for the first one.
  const std::vector<TextErrors>& texts() const { return texts_; }

 private:
  std::vector<Error> errors_;
  std::vector<std::string> files_;
  std::vector<TextErrors> texts_;
};

// Throws the only error as it is, or all as SourceErrors in order of the text. Without a text (null) it throws the
// first.
[[noreturn]] void throw_errors(const SourceText* source, std::vector<Error> errors);

// Throws all errors, text by text and each in its order, as SourceErrors. A single one without a place is thrown as it
// is. Returns if there are none.
void throw_texts(std::vector<TextErrors> texts);

// Sorts errors from top to bottom. Errors at one position keep their order.
std::vector<Error> in_order_of_text(std::vector<Error> errors);

}  // namespace harmonics::engine
