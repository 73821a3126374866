// ChatTemplate: renders messages as the prompt of a model.
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
  boost::json::array messages;  // {"role": "user", "content": "..."}, and other members known to the template
  boost::json::array tools;     // as in OpenAI's API; empty for none
  boost::json::object more;     // further variables, for example "enable_thinking"
  bool answer = true;           // append the start of the assistant's message
  std::time_t now = 0;          // for strftime_now
};

// A chat template in Jinja, as distributed with models. It cannot read files, and its steps, values, nesting and output
// are limited; the limits grow with the prompt. Immutable and thread-safe.
class ChatTemplate {
 public:
  // Throws ErrorKind::Syntax with line and column. `begin` and `end` are the values of bos_token and eos_token.
  explicit ChatTemplate(std::string_view text, std::string begin = "", std::string end = "");
  // Returns the template in the metadata of a model, "tokenizer.chat_template"; usual() if it has none. Prompts with
  // tools use "tokenizer.chat_template.tool_use", if there is one.
  static ChatTemplate of(const ModelMetadata& metadata, const Tokenizer& tokenizer);
  static ChatTemplate usual();  // the ChatML template
  ChatTemplate(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Throws ErrorKind::Usage with line and column if the template refuses the messages or exceeds a limit. `done`
  // receives the work done, also on an error.
  std::string render(const ChatPrompt& prompt, TemplateWork* done = nullptr) const;
  // Returns the limits, which grow with the size of the prompt.
  static TemplateWork allowed(const ChatPrompt& prompt);
  const std::string& text() const { return text_; }
  const std::string& text_with_tools() const { return with_tools_ ? with_tools_->text_ : text_; }
  // Whether prompts show tools to the model.
  bool shows_tools() const { return text_with_tools().find("tools") != std::string::npos; }
  // Returns the text that ends an answer in ChatML, if the vocabulary has no token for it; "" for a model's own
  // template.
  std::string stop_text(const Tokenizer& tokenizer) const;
  // Whether this is the model's own template, which also prints the begin token.
  bool own() const { return own_; }

 private:
  std::string text_, begin_, end_;
  bool own_ = true;
  std::unique_ptr<const jinja::Node> root_;
  std::unique_ptr<const ChatTemplate> with_tools_;  // null: the same
};

}  // namespace harmonics::engine
