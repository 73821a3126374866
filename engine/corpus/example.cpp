#include "engine/corpus/example.hpp"

#include <algorithm>
#include <optional>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/spelling.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

struct KindRow {
  const char* name;
  ExampleKind kind;
};
// The first row of a kind has its name; further rows have the names in other programs.
constexpr KindRow kKinds[] = {
    {"auto", ExampleKind::automatic},          {"text", ExampleKind::text},
    {"instruction", ExampleKind::instruction}, {"chat", ExampleKind::chat},
    {"completion", ExampleKind::text},         {"pretrain", ExampleKind::text},
    {"alpaca", ExampleKind::instruction},      {"prompt_completion", ExampleKind::instruction},
    {"chat_template", ExampleKind::chat},      {"sharegpt", ExampleKind::chat},
    {"preference", ExampleKind::preference},   {"dpo", ExampleKind::preference}};

constexpr const char* kColumns[] = {"text",     "prompt", "completion", "instruction", "input",  "output",
                                    "messages", "role",   "content",    "tools",       "chosen", "rejected"};

// The prompt of the Alpaca data set (Taori et al. 2023).
constexpr const char* kWithInput =
    "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
    "response that appropriately completes the request.\n\n";
constexpr const char* kWithoutInput =
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n";

[[noreturn]] void refuse_example(const std::string& what) { throw Error(ErrorKind::Stream, what); }

std::string string_of(const json::string& text) { return {text.data(), text.size()}; }

const char* json_kind(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "true or false";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "a list";
    case json::kind::object:
      return "an object";
    default:
      return "a number";
  }
}

std::string usual_role(const std::string& role) {
  if (role == "human") return "user";
  if (role == "gpt" || role == "bot" || role == "model") return "assistant";
  return role;
}

}  // namespace

std::vector<std::string> example_kind_names() {
  std::vector<std::string> names;
  for (const KindRow& row : kKinds) names.emplace_back(row.name);
  return names;
}

const char* example_kind_name(ExampleKind kind) {
  const auto* const row =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const KindRow& r) { return r.kind == kind; });
  return row->name;
}

ExampleKind example_kind_named(const std::string& name) {
  for (const KindRow& row : kKinds)
    if (name == row.name) return row.kind;
  Error e(ErrorKind::Usage,
          fmt::format("'{}' is not a kind of example: auto, text, instruction, chat or preference", name));
  if (const std::string meant = did_you_mean(name, example_kind_names()); !meant.empty()) e.note(meant);
  throw e;
}

Columns parse_columns(const std::string& text) {
  Columns columns;
  const std::vector<std::string> known(std::begin(kColumns), std::end(kColumns));
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size()), colon = text.find(':', at);
    if (colon >= comma || colon == at || colon + 1 == comma)
      throw Error(ErrorKind::Usage, fmt::format("'{}' is not a list of columns", text))
          .note("write NAME:FIELD, as in prompt:question,completion:answer");
    const std::string name = text.substr(at, colon - at);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      Error e(ErrorKind::Usage,
              fmt::format("examples have no column '{}'; they have {}", name, comma_separated(known)));
      if (const std::string meant = did_you_mean(name, known); !meant.empty()) e.note(meant);
      throw e;
    }
    if (!columns.emplace(name, text.substr(colon + 1, comma - colon - 1)).second)
      throw Error(ErrorKind::Usage, fmt::format("the column '{}' is given twice", name));
    at = comma + 1;
  }
  return columns;
}

ExampleFormat::ExampleFormat(ExampleKind kind, Columns columns, std::shared_ptr<const ChatTemplate> format,
                             std::string end_text, bool all)
    : kind_(kind),
      columns_(std::move(columns)),
      format_(std::move(format)),
      end_text_(std::move(end_text)),
      all_(all) {}

std::string ExampleFormat::column(const char* what) const {
  const auto at = columns_.find(what);
  return at == columns_.end() ? what : at->second;
}

bool ExampleFormat::has(const json::object& line, const char* what) const {
  const json::value* value = line.if_contains(column(what));
  return value && !value->is_null();
}

const json::object& ExampleFormat::object_of(const json::value& line) const {
  if (const json::object* object = line.if_object()) return *object;
  refuse_example(fmt::format("is {}; an example is an object with named fields", json_kind(line)));
}

std::string ExampleFormat::text_of(const json::object& line, const char* what) const {
  const std::string name = column(what);
  const json::value* value = line.if_contains(name);
  if (!value) {
    std::vector<std::string> keys;
    for (const auto& field : line) keys.emplace_back(field.key());
    const std::string meant = did_you_mean(name, keys);
    refuse_example(fmt::format("has no field '{}'; its fields are: {}{}", name, comma_separated(keys),
                               meant.empty() ? "" : "; " + meant));
  }
  if (!value->is_string()) refuse_example(fmt::format("has {} as '{}', not a string", json_kind(*value), name));
  return string_of(value->as_string());
}

ExampleKind ExampleFormat::kind_of(const json::value& first) const {
  if (kind_ != ExampleKind::automatic) return kind_;
  const json::object& line = object_of(first);
  if (has(line, "chosen") && has(line, "rejected")) return ExampleKind::preference;
  if (has(line, "messages") || line.contains("conversations")) return ExampleKind::chat;
  if (has(line, "completion") || has(line, "output")) return ExampleKind::instruction;
  if (has(line, "text")) return ExampleKind::text;
  std::vector<std::string> keys;
  for (const auto& field : line) keys.emplace_back(field.key());
  refuse_example(fmt::format(
      "has the fields {}, and none of 'text', 'completion', 'output', 'messages' and 'chosen'; name them with columns",
      comma_separated(keys)));
}

TextExample ExampleFormat::of_text(std::string text) {
  TextExample example;
  example.learned.push_back({0, text.size()});
  example.text = std::move(text);
  return example;
}

TextExample ExampleFormat::read(const json::value& value, ExampleKind kind) const {
  const json::object& line = object_of(value);
  if (kind == ExampleKind::text) return of_text(text_of(line, "text"));
  return kind == ExampleKind::chat ? chat(line) : instruction(line);
}

TextExample ExampleFormat::instruction(const json::object& line) const {
  std::string prompt, answer;
  if (has(line, "completion") || has(line, "prompt")) {
    prompt = text_of(line, "prompt");
    answer = text_of(line, "completion");
  } else {
    const std::string input = has(line, "input") ? text_of(line, "input") : "";
    prompt = (input.empty() ? kWithoutInput : kWithInput) + ("### Instruction:\n" + text_of(line, "instruction"));
    prompt += (input.empty() ? "" : "\n\n### Input:\n" + input) + "\n\n### Response:\n";
    answer = text_of(line, "output");
  }
  TextExample example;
  example.text = prompt + answer;
  example.learned.push_back({all_ ? 0 : prompt.size(), example.text.size()});
  return example;
}

json::array ExampleFormat::messages_of(const json::object& line) const {
  const std::string name = has(line, "messages") ? column("messages") : "conversations";
  const json::value* value = line.if_contains(name);
  if (!value) refuse_example(fmt::format("has no field '{}'", column("messages")));
  return messages_in(*value, name);
}

json::array ExampleFormat::messages_in(const json::value& value, const std::string& name) const {
  const json::array* list = value.if_array();
  if (!list) refuse_example(fmt::format("has no list of messages as '{}'", name));
  if (list->empty()) refuse_example(fmt::format("has an empty list of messages as '{}'", name));
  json::array messages;
  for (const json::value& one : *list) {
    const json::object* given = one.if_object();
    const std::string place = fmt::format("has in '{}', as message {},", name, messages.size() + 1);
    if (!given) refuse_example(fmt::format("{} {}, not an object", place, json_kind(one)));
    const auto field = [&](const char* usual, const char* other) {
      const std::string wanted = column(usual);
      return given->contains(wanted) || !given->contains(other) ? wanted : std::string(other);
    };
    const std::string role = field("role", "from"), content = field("content", "value");
    const json::value* who = given->if_contains(role);
    if (!who || !who->is_string()) refuse_example(fmt::format("{} no text '{}'", place, role));
    const json::value* said = given->if_contains(content);
    if (!said && !given->contains("tool_calls")) refuse_example(fmt::format("{} no '{}'", place, content));
    json::object message = *given;
    message.erase(role);
    message.erase(content);
    message["role"] = usual_role(string_of(who->as_string()));
    message["content"] = said ? *said : json::value(nullptr);
    messages.push_back(std::move(message));
  }
  return messages;
}

TextExample ExampleFormat::chat(const json::object& line) const {
  json::array tools;
  if (const json::value* given = line.if_contains(column("tools")); given && given->is_array())
    tools = given->as_array();
  return rendered(messages_of(line), std::move(tools));
}

// Learns the text that the template adds for messages of the assistant. A template may render a message differently
// if others follow, for example without its reasoning; its end is then found by its content.
TextExample ExampleFormat::rendered(json::array messages, json::array tools) const {
  if (!format_) refuse_example("is a conversation, and there is no chat template");
  ChatPrompt prompt;
  prompt.tools = std::move(tools);
  prompt.answer = false;
  prompt.messages = messages;
  TextExample example;
  example.special = true;
  example.begin = !format_->own();
  example.end = false;
  example.text = format_->render(prompt);
  const auto written = [&](size_t count, bool answer) {
    prompt.messages = json::array(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count));
    prompt.answer = answer;
    return format_->render(prompt);
  };
  size_t before = 0;
  for (size_t i = 0; i < messages.size() && !all_; ++i) {
    const json::object& message = messages[i].as_object();
    if (message.at("role").as_string() != "assistant") continue;
    const std::string opened = written(i, true), closed = written(i + 1, false);
    if (!example.text.starts_with(opened) || opened.size() < before)
      refuse_example(
          fmt::format("has an answer, message {}, that the chat template begins differently in a prompt", i + 1));
    size_t end = closed.size();
    if (!example.text.starts_with(closed)) {
      const json::value& content = message.at("content");
      const std::string said = content.is_string() ? string_of(content.as_string()) : "";
      const size_t at = said.empty() ? std::string::npos : example.text.find(said, opened.size());
      if (at == std::string::npos)
        refuse_example(fmt::format("has an answer, message {}, that the chat template does not write", i + 1));
      end = at + said.size();
      if (!end_text_.empty() && example.text.compare(end, end_text_.size(), end_text_) == 0) end += end_text_.size();
    }
    while (end > opened.size() && (example.text[end - 1] == '\n' || example.text[end - 1] == ' ')) --end;
    if (end > opened.size()) example.learned.push_back({opened.size(), end});
    before = end;
  }
  if (all_) example.learned.push_back({0, example.text.size()});
  if (example.learned.empty()) refuse_example("has no message of the assistant, so there is nothing to learn");
  return example;
}

// Returns one of the two answers, after its prompt.
TextExample ExampleFormat::answer(const json::object& line, const char* what) const {
  const std::string name = column(what);
  const json::value* given = line.if_contains(name);
  const json::value* prompt = has(line, "prompt") ? line.if_contains(column("prompt")) : nullptr;
  if (given && given->is_array()) {
    json::array messages;
    if (prompt) messages = messages_in(*prompt, column("prompt"));
    for (json::value& message : messages_in(*given, name)) messages.push_back(std::move(message));
    json::array tools;
    if (const json::value* listed = line.if_contains(column("tools")); listed && listed->is_array())
      tools = listed->as_array();
    return rendered(std::move(messages), std::move(tools));
  }
  TextExample example;
  const std::string before = prompt ? text_of(line, "prompt") : "";
  example.text = before + text_of(line, what);
  example.learned.push_back({before.size(), example.text.size()});
  return example;
}

std::pair<TextExample, TextExample> ExampleFormat::read_pair(const json::value& value) const {
  const json::object& line = object_of(value);
  std::pair<TextExample, TextExample> both{answer(line, "chosen"), answer(line, "rejected")};
  if (both.first.text == both.second.text) refuse_example("has identical chosen and rejected answers");
  const auto differ =
      std::mismatch(both.first.text.begin(), both.first.text.end(), both.second.text.begin(), both.second.text.end());
  const auto shared = static_cast<size_t>(differ.first - both.first.text.begin());
  for (TextExample* one : {&both.first, &both.second}) {  // answers before the first difference are part of the prompt
    std::erase_if(one->learned, [&](const TextExample::Range& range) { return range.end < shared; });
    if (one->learned.empty() || one->learned.back().begin == one->learned.back().end)
      refuse_example("has an empty answer");
  }
  return both;
}

}  // namespace harmonics::engine
