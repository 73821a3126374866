// The template of a model: messages in, prompt out.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "engine/language/template_budget.hpp"
#include "engine/language/tokenizer.hpp"

namespace harmonics::engine {

namespace jinja {
struct Node;
}

struct ChatPrompt {
  boost::json::array messages;  // {"role": "user", "content": "..."}, and what else the template knows
  boost::json::array tools;     // as of OpenAI's API; empty: none
  boost::json::object more;     // further variables: "enable_thinking"
  bool answer = true;           // ends with the beginning of the assistant's message
  std::time_t now = 0;          // for strftime_now
};

// A chat template in the Jinja that models bring along. It cannot read files, and its steps, values, nesting and output
// are bounded; the bounds grow with the prompt. Immutable: used by any threads at once.
class ChatTemplate {
 public:
  // Throws ErrorKind::Syntax with line and column. `begin` and `end` are the variables bos_token and eos_token.
  explicit ChatTemplate(std::string_view text, std::string begin = "", std::string end = "");
  // Of a model's metadata, "tokenizer.chat_template"; usual() if it has none.
  static ChatTemplate of(const ModelMetadata& metadata, const Tokenizer& tokenizer);
  static ChatTemplate usual();  // ChatML
  ChatTemplate(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Throws ErrorKind::Usage with line and column: for messages that the template refuses, and for templates that take
  // more than the bounds. `done`: receives the work, also when it throws.
  std::string render(const ChatPrompt& prompt, TemplateWork* done = nullptr) const;
  // The bounds, which grow with the size of the prompt.
  static TemplateWork allowed(const ChatPrompt& prompt);
  const std::string& text() const { return text_; }
  // Whether it is the model's own, which also writes the text of the begin token.
  bool own() const { return own_; }

 private:
  std::string text_, begin_, end_;
  bool own_ = true;
  std::unique_ptr<const jinja::Node> root_;
};

}  // namespace harmonics::engine
