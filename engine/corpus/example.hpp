// Examples of data sets: texts, and which parts of them a model learns to write.
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

// How the examples of a data set are written.
enum class ExampleKind {
  automatic,    // by the fields of the first example
  text,         // a text
  instruction,  // "prompt" and "completion", or "instruction", "input" and "output"
  chat,         // "messages", or "conversations"
  preference    // "chosen" and "rejected" answers to a "prompt"; of conversations, lists of messages
};
std::vector<std::string> example_kind_names();
const char* example_kind_name(ExampleKind kind);  // "preference"
// Also by the names of other programs: "alpaca", "completion", "chat_template", "sharegpt". Throws ErrorKind::Usage
// with the nearest name.
ExampleKind example_kind_named(const std::string& name);

struct TextExample {
  struct Range {
    size_t begin, end;  // bytes of `text`
  };
  std::string text;
  std::vector<Range> learned;  // in order, without overlaps
  bool special = false;        // special tokens are written in the text
  bool begin = true;           // begins with the tokenizer's begin id, where whole texts do
  bool end = true;             // the end id follows, and is learned
  bool continues = false;      // the next example is the same document
};

// Fields of an example by what they hold: "prompt" -> "question".
using Columns = std::map<std::string, std::string>;
// Parses "prompt:question,completion:answer". Throws ErrorKind::Usage for what no kind of examples holds.
Columns parse_columns(const std::string& text);

// Reads examples of one data set. Immutable after construction: used by any threads at once.
class ExampleFormat {
 public:
  // `format` may be null if the kind is text or instruction. `all`: prompts are learned too.
  ExampleFormat(ExampleKind kind, Columns columns, std::shared_ptr<const ChatTemplate> format, std::string end_text,
                bool all);

  // The kind of a data set whose first example this is. Throws ErrorKind::Stream if no kind fits.
  ExampleKind kind_of(const boost::json::value& first) const;
  // Throws ErrorKind::Stream with what is wrong about the example, without its place.
  TextExample read(const boost::json::value& line, ExampleKind kind) const;
  // The chosen and the rejected answer of a preference; only what differs is learned. Throws as read().
  std::pair<TextExample, TextExample> read_pair(const boost::json::value& line) const;
  // The whole content of a file, or a part of it.
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
  std::string end_text_;  // of the tokenizer's end id
  bool all_;
};

}  // namespace harmonics::engine
