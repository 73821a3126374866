#include "engine/language/chat_answer.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <boost/json.hpp>

#include "formats/exact_json.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr std::string_view kThink = "<think>", kThought = "</think>", kBlanks = " \t\r\n";

struct CallFormat {
  std::string_view open, close;  // empty `close`: ends with the answer
};
constexpr CallFormat kCallFormats[] = {
    {"<tool_call>", "</tool_call>"}, {"<|tool_call|>", "<|/tool_call|>"}, {"[TOOL_CALLS]", ""}, {"<|python_tag|>", ""}};

constexpr std::string_view kChannel = "<|channel|>", kMessage = "<|message|>", kEndOfMessage = "<|end|>",
                           kAuthor = "<|start|>assistant", kToFunction = "to=functions.";
constexpr size_t kLongestHeader = 256;

// Returns the function that a message is sent to, "" for other messages.
std::string_view function_of(std::string_view header) {
  const size_t at = header.find(kToFunction);
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + kToFunction.size());
  return header.substr(0, header.find_first_of(" \t\r\n<"));
}

// Returns the number of bytes at the end of the text that may be the start of `mark`.
size_t begun_bytes(const std::string& text, std::string_view mark) {
  for (size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length)
    if (std::string_view(text).substr(text.size() - length) == mark.substr(0, length)) return length;
  return 0;
}

std::string json_text(const boost::json::value& value) { return plain_numbers(boost::json::serialize(value)); }

bool add_call(const boost::json::value& value, std::vector<AnswerPart>& calls) {
  if (!value.is_object()) return false;
  const boost::json::object& object = value.get_object();
  const boost::json::value* const name = object.if_contains("name");
  const boost::json::value* given = object.if_contains("arguments");
  if (!given) given = object.if_contains("parameters");
  if (!name || !name->is_string()) return false;
  std::string arguments = "{}";
  if (given && given->is_object()) arguments = json_text(*given);
  if (given && given->is_string()) arguments.assign(given->get_string().data(), given->get_string().size());
  calls.push_back({AnswerPart::call, std::string(name->get_string().data(), name->get_string().size()), arguments});
  return true;
}

std::string_view trimmed(std::string_view text) {
  const size_t from = text.find_first_not_of(kBlanks);
  return from == std::string_view::npos ? "" : text.substr(from, text.find_last_not_of(kBlanks) - from + 1);
}

std::optional<boost::json::value> json_of(std::string_view text) {
  boost::json::error_code failed;
  boost::json::value value = parse_json(text, failed);
  if (failed) return {};
  return value;
}

// Returns the JSON object of a text, and nothing for other texts.
std::optional<boost::json::value> object_of(std::string_view text) {
  std::optional<boost::json::value> value = json_of(text);
  if (!value || !value->is_object()) return {};
  return value;
}

// Reads calls as newer models of Mistral write them: name[ARGS]{"x": 1}[TOOL_CALLS]name[CALL_ID]id[ARGS]{"x": 2}.
// Returns none if one of them has another form.
std::vector<AnswerPart> named_calls_of(std::string_view text) {
  constexpr std::string_view kNext = "[TOOL_CALLS]", kArguments = "[ARGS]", kId = "[CALL_ID]";
  std::vector<AnswerPart> calls;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(kNext, at), text.size());
    const std::string_view call = text.substr(at, end - at);
    const size_t mark = call.find(kArguments);
    if (mark == std::string_view::npos) return {};
    const std::string_view name = trimmed(call.substr(0, std::min(call.find(kId), mark))),
                           arguments = trimmed(call.substr(mark + kArguments.size()));
    const std::optional<boost::json::value> value = object_of(arguments);
    if (!value || name.empty()) return {};
    calls.push_back({AnswerPart::call, std::string(name), json_text(*value)});
    at = std::min(end + kNext.size(), text.size());
  }
  return calls;
}

}  // namespace

std::vector<AnswerPart> tool_calls_of(std::string_view text) {
  const std::optional<boost::json::value> value = json_of(text);
  if (!value) return named_calls_of(text);
  std::vector<AnswerPart> calls;
  if (!value->is_array()) {
    add_call(*value, calls);
    return calls;
  }
  for (const boost::json::value& one : value->get_array())
    if (!add_call(one, calls)) return {};
  return calls;
}

AnswerReader::AnswerReader(std::vector<std::string> tools, std::string_view prompt) : tools_(std::move(tools)) {
  if (begins_in_reasoning(prompt)) mode_ = Mode::reasoning;
  if (prompt.ends_with(kAuthor)) mode_ = Mode::author;
}

bool AnswerReader::begins_in_reasoning(std::string_view prompt) {
  return prompt.substr(0, prompt.find_last_not_of(kBlanks) + 1).ends_with(kThink);
}

std::vector<AnswerPart> AnswerReader::push(const std::string& more) {
  held_ += more;
  std::vector<AnswerPart> parts;
  while (advance(parts, false)) {
  }
  return parts;
}

std::vector<AnswerPart> AnswerReader::finish() {
  std::vector<AnswerPart> parts;
  while (advance(parts, true)) {
  }
  return parts;
}

bool AnswerReader::is_known(const AnswerPart& call) const {
  return std::find(tools_.begin(), tools_.end(), call.text) != tools_.end();
}

void AnswerReader::emit(std::vector<AnswerPart>& parts, AnswerPart::Kind kind, std::string text) {
  if (kind == AnswerPart::content && !begun_) text.erase(0, text.find_first_not_of(kBlanks));
  if (text.empty()) return;
  if (kind == AnswerPart::content) begun_ = true;
  if (!parts.empty() && parts.back().kind == kind)
    parts.back().text += text;
  else
    parts.push_back({kind, std::move(text)});
}

// Processes held text. Returns whether there may be more to process.
bool AnswerReader::advance(std::vector<AnswerPart>& parts, bool last) {
  if (held_.empty()) return false;
  if (mode_ == Mode::content) return advance_content(parts, last);
  if (mode_ == Mode::author || mode_ == Mode::channel) return advance_header(parts, last);
  return mode_ == Mode::message ? advance_message(parts, last) : advance_block(parts, last);
}

// Reads what stands before the text of a message: <|start|>assistant to=X<|channel|>NAME to=X
// <|constrain|>json<|message|>.
bool AnswerReader::advance_header(std::vector<AnswerPart>& parts, bool last) {
  const std::string_view mark = mode_ == Mode::author ? kChannel : kMessage;
  const size_t at = held_.find(mark), first = held_.find_first_not_of(kBlanks);
  const bool other = mode_ == Mode::author && first != std::string::npos && held_[first] == '{';  // by a grammar
  if (at == std::string::npos || other) {
    if (!last && !other && held_.size() <= kLongestHeader) return false;
    if (mode_ == Mode::channel) emit(parts, AnswerPart::content, std::string(kChannel));
    mode_ = Mode::content;
    return true;
  }
  if (mode_ == Mode::author) {
    header_ = held_.substr(0, at);
    mode_ = Mode::channel;
  } else {
    header_ = held_.substr(0, at) + ' ' + header_;
    mode_ = Mode::message;
  }
  held_.erase(0, at + mark.size());
  return true;
}

bool AnswerReader::advance_message(std::vector<AnswerPart>& parts, bool last) {
  const std::string_view name = !tools_.empty() ? function_of(header_) : std::string_view();
  const size_t end = held_.find(kEndOfMessage);
  const bool whole = end != std::string::npos || last;
  if (!name.empty()) {
    if (!whole) return false;
    const std::string_view text = std::string_view(held_).substr(0, end);
    if (const auto arguments = object_of(trimmed(text).empty() ? "{}" : text))
      parts.push_back({AnswerPart::call, std::string(name), json_text(*arguments)});
    else
      emit(parts, AnswerPart::content, std::string(text));
  } else {
    const size_t kept = whole ? 0 : begun_bytes(held_, kEndOfMessage);
    const bool thinks = trimmed(header_).starts_with("analysis");
    emit(parts, thinks ? AnswerPart::reasoning : AnswerPart::content,
         held_.substr(0, std::min(end, held_.size() - kept)));
    if (!whole) {
      held_.erase(0, held_.size() - kept);
      return false;
    }
  }
  held_.erase(0, end == std::string::npos ? end : end + kEndOfMessage.size());
  begun_ = false;
  mode_ = Mode::author;
  return !held_.empty();
}

bool AnswerReader::advance_content(std::vector<AnswerPart>& parts, bool last) {
  if (!tools_.empty() && !begun_) {
    const size_t first = held_.find_first_not_of(kBlanks);
    if (first == std::string::npos && !last) return false;
    if (first != std::string::npos && held_[first] == '{') {  // possibly a call without a mark
      mode_ = Mode::call;
      open_ = close_ = "";
      return true;
    }
  }
  size_t at = held_.find(kThink), open = kThink.size();
  if (const size_t channel = held_.find(kChannel); channel < at) {
    emit(parts, AnswerPart::content, held_.substr(0, channel));
    held_.erase(0, channel);
    mode_ = Mode::author;
    return true;
  }
  const CallFormat* call = nullptr;
  if (!tools_.empty())
    for (const CallFormat& format : kCallFormats)
      if (const size_t found = held_.find(format.open); found < at) {
        at = found;
        open = format.open.size();
        call = &format;
      }
  if (at != std::string::npos) {
    emit(parts, AnswerPart::content, held_.substr(0, at));
    held_.erase(0, at + open);
    mode_ = call ? Mode::call : Mode::reasoning;
    if (call) {
      open_ = call->open;
      close_ = call->close;
    }
    return true;
  }
  size_t kept = 0;
  if (!last) {
    kept = std::max(begun_bytes(held_, kThink), begun_bytes(held_, kChannel));
    if (!tools_.empty())
      for (const CallFormat& format : kCallFormats) kept = std::max(kept, begun_bytes(held_, format.open));
  }
  emit(parts, AnswerPart::content, held_.substr(0, held_.size() - kept));
  held_.erase(0, held_.size() - kept);
  return false;
}

bool AnswerReader::advance_block(std::vector<AnswerPart>& parts, bool last) {
  const std::string_view close = mode_ == Mode::reasoning ? kThought : std::string_view(close_);
  const size_t end = close.empty() ? std::string::npos : held_.find(close);
  if (end == std::string::npos && !last) {
    if (mode_ == Mode::call) return false;
    const size_t kept = begun_bytes(held_, close);
    emit(parts, AnswerPart::reasoning, held_.substr(0, held_.size() - kept));
    held_.erase(0, held_.size() - kept);
    return false;
  }
  const std::string block = held_.substr(0, end);
  held_ = end == std::string::npos ? "" : held_.substr(end + close.size());
  if (mode_ == Mode::reasoning) {
    emit(parts, AnswerPart::reasoning, block);
    begun_ = false;  // drops white space between reasoning and answer
  } else {
    std::vector<AnswerPart> calls = tool_calls_of(block);
    // Without a mark, an object such as {"name": "Ada"} may as well be the answer.
    if (open_.empty() && !calls.empty() && !is_known(calls.front())) calls.clear();
    parts.insert(parts.end(), calls.begin(), calls.end());
    if (calls.empty()) emit(parts, AnswerPart::content, open_ + block + (end == std::string::npos ? "" : close_));
    if (!calls.empty()) held_.erase(0, std::min(held_.find_first_not_of(kBlanks), held_.size()));
  }
  mode_ = Mode::content;
  return !held_.empty();
}

}  // namespace harmonics::engine
