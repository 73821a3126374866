#include "engine/language/chat_template.hpp"

#include <boost/json.hpp>

#include "engine/language/template_run.hpp"

namespace harmonics::engine {

namespace {

const std::string kTemplateName = "the chat template";

constexpr std::string_view kChatMl =
    R"({% if tools %}{{ '<|im_start|>system\n' }}{% if messages[0]['role'] == 'system' %})"
    R"({{ messages[0]['content'] + '\n\n' }}{% endif %}{{ 'You may call these functions:\n' }})"
    R"({% for tool in tools %}{{ tool | tojson + '\n' }}{% endfor %})"
    R"({{ 'Write a call as <tool_call>{"name": NAME, "arguments": OBJECT}</tool_call>.<|im_end|>\n' }}{% endif %})"
    R"({% for message in messages %}{% if not (tools and loop.first and message['role'] == 'system') %})"
    R"({{ '<|im_start|>' + message['role'] + '\n' + (message['content'] or '') }})"
    R"({% for call in message['tool_calls'] or [] %}{{ '<tool_call>' + call['function'] | tojson + '</tool_call>' }})"
    R"({% endfor %}{{ '<|im_end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %})"
    R"({{ '<|im_start|>assistant\n' }}{% endif %})";

// Values and bytes of the variables that a prompt brings along.
struct InputSize {
  uint64_t values = 0, bytes = 0;
  void add(const boost::json::value& value) {
    ++values;
    if (value.is_string()) bytes += value.get_string().size();
    if (value.is_array()) add(value.get_array());
    if (value.is_object()) add(value.get_object());
  }
  void add(const boost::json::array& all) {
    for (const boost::json::value& value : all) add(value);
  }
  void add(const boost::json::object& all) {
    for (const auto& [key, value] : all) {
      ++values;
      bytes += key.size();
      add(value);
    }
  }
};

jinja::RunLimits limits_of(const ChatPrompt& prompt) {
  InputSize size;
  size.add(prompt.messages);
  size.add(prompt.tools);
  size.add(prompt.more);
  return jinja::limits_for(size.values, size.bytes);
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view text, std::string begin, std::string end)
    : text_(text), begin_(std::move(begin)), end_(std::move(end)), root_(jinja::parse_template(text_, kTemplateName)) {}

std::string ChatTemplate::stop_text(const Tokenizer& tokenizer) const {
  constexpr const char* kEnd = "<|im_end|>";
  return own_ || tokenizer.special_token(kEnd) ? "" : kEnd;
}

ChatTemplate ChatTemplate::usual() {
  ChatTemplate made(kChatMl);
  made.own_ = false;
  return made;
}

ChatTemplate ChatTemplate::of(const ModelMetadata& metadata, const Tokenizer& tokenizer) {
  constexpr std::string_view kKey = "tokenizer.chat_template", kWithTools = "tokenizer.chat_template.tool_use";
  if (!metadata.has(kKey)) return usual();
  const auto text = [&](std::optional<int32_t> id) { return id ? tokenizer.written(*id) : std::string(); };
  const std::string begin = text(tokenizer.bos()), end = text(tokenizer.eos());
  ChatTemplate made(metadata.text(kKey), begin, end);
  if (metadata.has(kWithTools))
    made.with_tools_ = std::make_unique<const ChatTemplate>(metadata.text(kWithTools), begin, end);
  return made;
}

ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

TemplateWork ChatTemplate::allowed(const ChatPrompt& prompt) { return limits_of(prompt).most; }

std::string ChatTemplate::render(const ChatPrompt& prompt, TemplateWork* done) const {
  if (with_tools_ && !prompt.tools.empty()) return with_tools_->render(prompt, done);
  using jinja::Value;
  jinja::Run run(kTemplateName, limits_of(prompt), prompt.now);
  run.define("messages", Value::of(prompt.messages));
  run.define("tools", prompt.tools.empty() ? Value::none() : Value::of(prompt.tools));
  run.define("documents", Value::none());
  run.define("add_generation_prompt", Value(prompt.answer));
  run.define("bos_token", Value(begin_));
  run.define("eos_token", Value(end_));
  for (const auto& [key, value] : prompt.more) run.define(std::string(key.data(), key.size()), Value::of(value));
  try {
    std::string text = run.render(*root_);
    if (done) *done = run.budget().work();
    return text;
  } catch (const Error&) {
    if (done) *done = run.budget().work();
    throw;
  }
}

}  // namespace harmonics::engine
