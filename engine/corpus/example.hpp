// Examples of data sets: texts, with the ranges that a model learns to generate.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json/value.hpp>

#include "engine/language/chat_template.hpp"

namespace harmonics::engine {

// The formats of examples.
enum class ExampleKind {
  automatic,    // determined by the fields of the first example
  text,         // "text", or a plain text file
  instruction,  // "prompt" and "completion", or "instruction", "input" and "output"
  chat,         // "messages", or "conversations"
  preference    // "chosen" and "rejected" answers to a "prompt": texts or lists of messages
};
std::vector<std::string> example_kind_names();
const char* example_kind_name(ExampleKind kind);  // "text", "chat", ...
// Returns the kind of a name, which may be that of another program: "alpaca", "completion", "chat_template",
// "sharegpt". Throws ErrorKind::Usage with the nearest name.
ExampleKind example_kind_named(const std::string& name);

struct TextExample {
  struct Range {
    size_t begin, end;  // offsets in bytes
  };
  std::string text;
  std::vector<Range> learned;  // sorted, without overlaps
  bool special = false;        // the text contains special tokens
  bool begin = true;           // add the begin id, if the tokenizer adds it to whole texts
  bool end = true;             // append the end id, which is learned
  bool continues = false;      // the next example continues the document
};

// Field names of an example by column: "prompt" -> "question".
using Columns = std::map<std::string, std::string>;
// Parses "prompt:question,completion:answer". Throws ErrorKind::Usage for unknown columns.
Columns parse_columns(const std::string& text);

// Reads examples of one data set. Immutable after construction, thus thread-safe.
class ExampleFormat {
 public:
  // `format` may be null if no example is a conversation. `end_text` is the text of the tokenizer's end id. `all`:
  // prompts are learned too.
  ExampleFormat(ExampleKind kind, Columns columns, std::shared_ptr<const ChatTemplate> format, std::string end_text,
                bool all);

  // Returns the kind of a data set with this first example. Throws ErrorKind::Stream if no kind fits.
  ExampleKind kind_of(const boost::json::value& first) const;
  // Reads an example. Throws ErrorKind::Stream with the reason, without the position in the file.
  TextExample read(const boost::json::value& line, ExampleKind kind) const;
  // Reads the chosen and the rejected answer of a preference. Answers before the first difference are not learned.
  // Throws the errors of read().
  std::pair<TextExample, TextExample> read_pair(const boost::json::value& line) const;
  // Returns plain text as an example that is learned completely.
  static TextExample of_text(std::string text);

 private:
  std::string column(const char* what) const;
  const boost::json::object& object_of(const boost::json::value& line) const;
  std::string text_of(const boost::json::object& line, const char* what) const;
  bool has(const boost::json::object& line, const char* what) const;
  TextExample instruction(const boost::json::object& line) const;
  TextExample chat(const boost::json::object& line) const;
  boost::json::array messages_of(const boost::json::object& line) const;
  boost::json::array messages_in(const boost::json::value& value, const std::string& name) const;
  TextExample answer(const boost::json::object& line, const char* what) const;
  TextExample rendered(boost::json::array messages, boost::json::array tools) const;

  ExampleKind kind_;
  Columns columns_;
  std::shared_ptr<const ChatTemplate> format_;
  std::string end_text_;  // text of the tokenizer's end id
  bool all_;
};

}  // namespace harmonics::engine
