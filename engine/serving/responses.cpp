#include "engine/serving/responses.hpp"

#include <algorithm>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "engine/serving/json_fields.hpp"
#include "engine/serving/json_text.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

// Returns the text of an item, which may be a list of parts.
std::string item_text(const json::value* content, const char* field) {
  if (!content || content->is_null()) return "";
  if (content->is_string()) return copied(content->get_string());
  if (!content->is_array()) refuse_field(field, "is neither a string nor a list of parts");
  std::string text;
  for (const json::value& part : content->get_array()) {
    if (!part.is_object()) refuse_field(field, "has a part that is not an object");
    const JsonFields fields(part.get_object());
    const std::string type = fields.text("type", "input_text");
    if (type == "refusal") continue;
    if (type != "input_text" && type != "output_text" && type != "text")
      refuse_field(field, fmt::format("has a part of the type '{}': the model reads text", type));
    text += fields.text("text");
  }
  return text;
}

// Adds a tool call to the preceding message of the assistant, or as a new message.
void add_call_message(const JsonFields& fields, json::array& messages) {
  json::object call{{"id", fields.text("call_id")},
                    {"type", "function"},
                    {"function", {{"name", fields.text("name")}, {"arguments", fields.text("arguments", "{}")}}}};
  if (!messages.empty())
    if (json::object& last = messages.back().get_object(); last.at("role").as_string() == "assistant") {
      if (!last.contains("tool_calls")) last["tool_calls"] = json::array();
      return last["tool_calls"].get_array().push_back(std::move(call));
    }
  messages.push_back(
      json::object{{"role", "assistant"}, {"content", ""}, {"tool_calls", json::array{std::move(call)}}});
}

void add_item(const json::value& value, json::array& messages) {
  if (!value.is_object()) refuse_field("input", "has an item that is not an object");
  const JsonFields fields(value.get_object());
  const std::string type = fields.text("type", "message");
  if (type == "message") {
    const std::string role = fields.text("role");
    if (role.empty()) refuse_field("role", "of an item of 'input' is missing");
    messages.push_back(json::object{{"role", role}, {"content", item_text(fields.find("content"), "content")}});
  } else if (type == "function_call") {
    add_call_message(fields, messages);
  } else if (type == "function_call_output") {
    messages.push_back(json::object{{"role", "tool"},
                                    {"tool_call_id", fields.text("call_id")},
                                    {"content", item_text(fields.find("output"), "output")}});
  } else if (type != "reasoning") {  // reasoning is not passed to the model again
    refuse_field(
        "input",
        fmt::format(
            "has an item of the type '{}': message, function_call, function_call_output and reasoning are supported",
            type));
  }
}

void add_input(const JsonFields& fields, json::array& messages) {
  const json::value* const input = fields.find("input");
  if (!input) refuse_field("input", "is missing: give a string or a list of items");
  if (input->is_string())
    messages.push_back(json::object{{"role", "user"}, {"content", *input}});
  else
    for (const json::value& item : *fields.array("input")) add_item(item, messages);
  if (messages.empty()) refuse_field("input", "is empty");
}

// Converts {"type": "function", "name": ...} to {"type": "function", "function": {"name": ...}}.
json::array chat_tools(const json::array& tools) {
  json::array all;
  for (const json::value& tool : tools) {
    if (!tool.is_object()) refuse_field("tools", "has an item that is not an object");
    const JsonFields fields(tool.get_object());
    if (fields.text("type") != "function")
      refuse_field("tools",
                   fmt::format("has a tool of the type '{}': only functions are supported", fields.text("type")));
    json::object function = tool.get_object();
    function.erase("type");
    function.erase("strict");
    all.push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
  }
  return all;
}

json::object chat_format(const json::object& format) {
  const std::string type = JsonFields(format).text("type", "text");
  if (type != "json_schema") return {{"type", type}};
  json::object named = format;
  named.erase("type");
  return {{"type", type}, {"json_schema", std::move(named)}};
}

// Throws for unsupported fields that would change the reply.
void refuse_unknown(const JsonFields& fields) {
  for (const char* field : {"conversation", "prompt"})
    if (fields.find(field)) refuse_field(field, "is not supported; give 'input' and 'previous_response_id'");
  if (fields.flag("background", false)) refuse_field("background", "is not supported; request a stream");
  if (fields.text("truncation", "disabled") != "disabled") refuse_field("truncation", "must be \"disabled\"");
}

bool wants_log_probabilities(const JsonFields& fields) {
  if (fields.whole("top_logprobs", 0, 0, 20) > 0) return true;
  const json::array* const include = fields.array("include");
  return include &&
         std::ranges::any_of(*include, [](const json::value& one) { return one == "message.output_text.logprobs"; });
}

json::value repeated_value(const JsonFields& fields, const char* field, json::value otherwise) {
  const json::value* const value = fields.find(field);
  if (value) return *value;
  return otherwise;
}

}  // namespace

void ResponseStore::keep(const std::string& id, Kept kept) {
  Sized sized{std::move(kept), 0};
  sized.bytes = json::serialize(sized.kept.messages).size() + json::serialize(sized.kept.response).size();
  const std::lock_guard lock(mutex_);
  bytes_ += sized.bytes;
  all_.insert_or_assign(id, std::move(sized));
  order_.push_back(id);
  while (!order_.empty() && (all_.size() > kMost || bytes_ > kMostBytes || order_.size() > 2 * kMost)) {
    if (const auto oldest = all_.find(order_.front()); oldest != all_.end()) {
      bytes_ -= oldest->second.bytes;
      all_.erase(oldest);
    }
    order_.pop_front();
  }
}

std::optional<ResponseStore::Kept> ResponseStore::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto at = all_.find(id);
  if (at == all_.end()) return std::nullopt;
  return at->second.kept;
}

bool ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto at = all_.find(id);
  if (at == all_.end()) return false;
  bytes_ -= at->second.bytes;
  all_.erase(at);
  return true;
}

ReadResponse read_response_request(std::string_view body, const std::shared_ptr<ResponseStore>& store) {
  const json::object object = object_of_body(body);
  const JsonFields fields(object);
  refuse_unknown(fields);
  const auto record = std::make_shared<ResponseRecord>();
  const std::string previous = fields.text("previous_response_id");
  if (!previous.empty()) {
    std::optional<ResponseStore::Kept> kept = store->find(previous);
    if (!kept)
      refuse_field("previous_response_id", fmt::format("is '{}', which is not stored; only the last {} responses are",
                                                       previous, ResponseStore::kMost));
    record->messages = std::move(kept->messages);
  }
  add_input(fields, record->messages);
  if (fields.flag("store", true)) record->store = store;
  json::object chat;
  json::array messages;
  if (const std::string instructions = fields.text("instructions"); !instructions.empty())
    messages.push_back(json::object{{"role", "system"}, {"content", instructions}});
  messages.insert(messages.end(), record->messages.begin(), record->messages.end());
  chat["messages"] = std::move(messages);
  for (const char* same : {"model",
                           "temperature",
                           "top_p",
                           "top_k",
                           "min_p",
                           "typical_p",
                           "stream",
                           "seed",
                           "stop",
                           "tool_choice",
                           "parallel_tool_calls",
                           "presence_penalty",
                           "frequency_penalty",
                           "logit_bias",
                           "repetition_penalty",
                           "repeat_penalty",
                           "grammar",
                           "thinking",
                           "enable_thinking",
                           "chat_template_kwargs"})
    if (const json::value* const given = fields.find(same)) chat[same] = *given;
  if (const json::value* const most = fields.find("max_output_tokens")) {
    fields.whole("max_output_tokens", 1, 1, INT32_MAX);
    chat["max_tokens"] = *most;
  }
  if (const json::object* const reasoning = fields.object("reasoning"))
    if (const std::string effort = JsonFields(*reasoning).text("effort"); !effort.empty())
      chat["reasoning_effort"] = effort;
  if (wants_log_probabilities(fields)) {
    chat["logprobs"] = true;
    if (const json::value* const most = fields.find("top_logprobs")) chat["top_logprobs"] = *most;
  }
  if (const json::array* const tools = fields.array("tools")) chat["tools"] = chat_tools(*tools);
  if (const json::object* const text = fields.object("text"))
    if (const json::object* const format = JsonFields(*text).object("format"))
      chat["response_format"] = chat_format(*format);
  record->repeated = {{"instructions", repeated_value(fields, "instructions", nullptr)},
                      {"max_output_tokens", repeated_value(fields, "max_output_tokens", nullptr)},
                      {"metadata", repeated_value(fields, "metadata", json::object())},
                      {"parallel_tool_calls", repeated_value(fields, "parallel_tool_calls", true)},
                      {"previous_response_id", repeated_value(fields, "previous_response_id", nullptr)},
                      {"reasoning", repeated_value(fields, "reasoning", json::object())},
                      {"store", record->store != nullptr},
                      {"temperature", repeated_value(fields, "temperature", nullptr)},
                      {"text", repeated_value(fields, "text", {{"format", {{"type", "text"}}}})},
                      {"tool_choice", repeated_value(fields, "tool_choice", "auto")},
                      {"tools", repeated_value(fields, "tools", json::array())},
                      {"top_p", repeated_value(fields, "top_p", nullptr)},
                      {"truncation", "disabled"},
                      {"user", repeated_value(fields, "user", nullptr)}};
  return {json::serialize(chat), record};
}

ResponseWriter::ResponseWriter(std::shared_ptr<const ResponseRecord> record, std::string model, std::string id,
                               int64_t now)
    : record_(std::move(record)), model_(std::move(model)), id_(std::move(id)), now_(now) {}

std::string ResponseWriter::event(const char* name, json::object object) {
  object["type"] = name;
  object["sequence_number"] = number_++;
  return fmt::format("event: {}\ndata: {}\n\n", name, json_line(object));
}

json::object ResponseWriter::response(const char* status) const {
  json::object all{{"id", id_},        {"object", "response"}, {"created_at", now_},
                   {"status", status}, {"error", nullptr},     {"incomplete_details", nullptr},
                   {"model", model_},  {"output", output_},    {"usage", nullptr}};
  for (const auto& [key, value] : record_->repeated) all[key] = value;
  return all;
}

std::string ResponseWriter::begin() {
  std::string lines = event("response.created", {{"response", response("in_progress")}});
  return lines + event("response.in_progress", {{"response", response("in_progress")}});
}

// Returns the open item with this status.
json::object ResponseWriter::item(const char* status) const {
  const bool message = open_ == AnswerPart::content;
  json::array content;
  if (std::string_view(status) != "in_progress") {
    json::object part{{"type", message ? "output_text" : "reasoning_text"}, {"text", text_}};
    if (message) part["annotations"] = json::array();
    if (message && !logprobs_.empty()) part["logprobs"] = logprobs_;
    content.push_back(std::move(part));
  }
  json::object all{{"id", fmt::format("{}_{}_{}", message ? "msg" : "rs", id_, output_.size())},
                   {"type", message ? "message" : "reasoning"},
                   {"status", status},
                   {"content", std::move(content)}};
  if (message)
    all["role"] = "assistant";
  else
    all["summary"] = json::array();
  return all;
}

std::string ResponseWriter::open(AnswerPart::Kind kind) {
  if (open_ == kind) return "";
  std::string lines = close();
  open_ = kind;
  const json::object added = item("in_progress");
  lines += event("response.output_item.added", {{"output_index", output_.size()}, {"item", added}});
  if (kind != AnswerPart::content) return lines;
  return lines + event("response.content_part.added",
                       {{"item_id", added.at("id")},
                        {"output_index", output_.size()},
                        {"content_index", 0},
                        {"part", {{"type", "output_text"}, {"text", ""}, {"annotations", json::array()}}}});
}

std::string ResponseWriter::close(const char* status) {
  if (!open_) return "";
  const json::object done = item(status);
  json::object place{{"item_id", done.at("id")}, {"output_index", output_.size()}, {"content_index", 0}};
  json::object whole = place;
  whole["text"] = text_;
  std::string lines;
  if (open_ == AnswerPart::content) {
    whole["logprobs"] = logprobs_;
    lines += event("response.output_text.done", std::move(whole));
    place["part"] = done.at("content").at(0);
    lines += event("response.content_part.done", std::move(place));
    said_ += text_;
  } else {
    lines += event("response.reasoning_text.done", std::move(whole));
  }
  lines += event("response.output_item.done", {{"output_index", output_.size()}, {"item", done}});
  output_.push_back(done);
  text_.clear();
  logprobs_.clear();
  open_.reset();
  return lines;
}

std::string ResponseWriter::add_call(const AnswerPart& call) {
  std::string lines = close();
  const size_t index = output_.size();
  const std::string id = fmt::format("fc_{}_{}", id_, index), call_id = fmt::format("call_{}_{}", id_, index);
  json::object item{{"id", id},           {"type", "function_call"}, {"status", "in_progress"},
                    {"call_id", call_id}, {"name", call.text},       {"arguments", ""}};
  lines += event("response.output_item.added", {{"output_index", index}, {"item", item}});
  const json::object place{{"item_id", id}, {"output_index", index}};
  json::object delta = place, whole = place;
  delta["delta"] = call.arguments;
  whole["arguments"] = call.arguments;
  whole["name"] = call.text;
  lines += event("response.function_call_arguments.delta", std::move(delta));
  lines += event("response.function_call_arguments.done", std::move(whole));
  item["status"] = "completed";
  item["arguments"] = call.arguments;
  lines += event("response.output_item.done", {{"output_index", index}, {"item", item}});
  output_.push_back(std::move(item));
  calls_.push_back(json::object{
      {"id", call_id}, {"type", "function"}, {"function", {{"name", call.text}, {"arguments", call.arguments}}}});
  return lines;
}

std::string ResponseWriter::more(const std::vector<AnswerPart>& parts, json::array logprobs) {
  std::string lines;
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::call) {
      lines += add_call(part);
      continue;
    }
    lines += open(part.kind);
    text_ += part.text;
    json::object delta{{"item_id", item("in_progress").at("id")},
                       {"output_index", output_.size()},
                       {"content_index", 0},
                       {"delta", part.text}};
    const bool content = part.kind == AnswerPart::content;
    if (content) {
      logprobs_.insert(logprobs_.end(), logprobs.begin(), logprobs.end());
      delta["logprobs"] = std::exchange(logprobs, {});
    }
    lines += event(content ? "response.output_text.delta" : "response.reasoning_text.delta", std::move(delta));
  }
  return lines;
}

std::string ResponseWriter::end(const Continuation& done) {
  const bool cut = done.end == EndOfText::tokens || done.end == EndOfText::context;
  const char* const status = cut ? "incomplete" : "completed";
  std::string lines = close(status);
  response_ = response(status);
  if (cut) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
  response_["usage"] = {{"input_tokens", done.prompt_tokens},
                        {"input_tokens_details", {{"cached_tokens", done.reused_tokens}}},
                        {"output_tokens", done.tokens},
                        {"output_tokens_details", {{"reasoning_tokens", 0}}},
                        {"total_tokens", done.prompt_tokens + done.tokens}};
  if (record_->store) {
    json::array messages = record_->messages;
    json::object answer{{"role", "assistant"}, {"content", said_}};
    if (!calls_.empty()) answer["tool_calls"] = calls_;
    messages.push_back(std::move(answer));
    record_->store->keep(id_, {std::move(messages), response_});
  }
  return lines + event(cut ? "response.incomplete" : "response.completed", {{"response", response_}});
}

std::string ResponseWriter::failed(const std::string& message) {
  json::object failed = response("failed");
  failed["error"] = {{"code", "server_error"}, {"message", message}};
  return event("response.failed", {{"response", std::move(failed)}});
}

}  // namespace harmonics::engine
