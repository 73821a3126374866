#include "engine/language/chat_answer.hpp"

#include <algorithm>

#include <boost/json.hpp>

namespace harmonics::engine {

namespace {

constexpr std::string_view kThink = "<think>", kThought = "</think>", kBlanks = " \t\r\n";

struct CallFormat {
  std::string_view open, close;  // empty `close`: ends with the answer
};
constexpr CallFormat kCallFormats[] = {
    {"<tool_call>", "</tool_call>"}, {"<|tool_call|>", "<|/tool_call|>"}, {"[TOOL_CALLS]", ""}, {"<|python_tag|>", ""}};

// Returns the number of bytes at the end of the text that may be the start of `mark`.
size_t begun_bytes(const std::string& text, std::string_view mark) {
  for (size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length)
    if (std::string_view(text).substr(text.size() - length) == mark.substr(0, length)) return length;
  return 0;
}

bool add_call(const boost::json::value& value, std::vector<AnswerPart>& calls) {
  if (!value.is_object()) return false;
  const boost::json::object& object = value.get_object();
  const boost::json::value* const name = object.if_contains("name");
  const boost::json::value* given = object.if_contains("arguments");
  if (!given) given = object.if_contains("parameters");
  if (!name || !name->is_string()) return false;
  std::string arguments = "{}";
  if (given && given->is_object()) arguments = boost::json::serialize(*given);
  if (given && given->is_string()) arguments.assign(given->get_string().data(), given->get_string().size());
  calls.push_back({AnswerPart::call, std::string(name->get_string().data(), name->get_string().size()), arguments});
  return true;
}

std::string_view trimmed(std::string_view text) {
  const size_t from = text.find_first_not_of(kBlanks);
  return from == std::string_view::npos ? "" : text.substr(from, text.find_last_not_of(kBlanks) - from + 1);
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
    boost::json::error_code failed;
    boost::json::parse_options options;
    options.max_depth = 64;
    const boost::json::value value =
        boost::json::parse(boost::json::string_view(arguments.data(), arguments.size()), failed, {}, options);
    if (failed || !value.is_object() || name.empty()) return {};
    calls.push_back({AnswerPart::call, std::string(name), boost::json::serialize(value)});
    at = std::min(end + kNext.size(), text.size());
  }
  return calls;
}

}  // namespace

std::vector<AnswerPart> tool_calls_of(std::string_view text) {
  boost::json::error_code failed;
  boost::json::parse_options options;
  options.max_depth = 64;
  const boost::json::value value =
      boost::json::parse(boost::json::string_view(text.data(), text.size()), failed, {}, options);
  if (failed) return named_calls_of(text);
  std::vector<AnswerPart> calls;
  if (!value.is_array()) {
    add_call(value, calls);
    return calls;
  }
  for (const boost::json::value& one : value.get_array())
    if (!add_call(one, calls)) return {};
  return calls;
}

AnswerReader::AnswerReader(bool tools, std::string_view prompt) : tools_(tools) {
  if (begins_in_reasoning(prompt)) mode_ = Mode::reasoning;
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
  return mode_ == Mode::content ? advance_content(parts, last) : advance_block(parts, last);
}

bool AnswerReader::advance_content(std::vector<AnswerPart>& parts, bool last) {
  if (tools_ && !begun_) {
    const size_t first = held_.find_first_not_of(kBlanks);
    if (first == std::string::npos && !last) return false;
    if (first != std::string::npos && held_[first] == '{') {  // possibly a call without a mark
      mode_ = Mode::call;
      open_ = close_ = "";
      return true;
    }
  }
  size_t at = held_.find(kThink), open = kThink.size();
  const CallFormat* call = nullptr;
  if (tools_)
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
    kept = begun_bytes(held_, kThink);
    if (tools_)
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
    const std::vector<AnswerPart> calls = tool_calls_of(block);
    parts.insert(parts.end(), calls.begin(), calls.end());
    if (calls.empty()) emit(parts, AnswerPart::content, open_ + block + (end == std::string::npos ? "" : close_));
    if (!calls.empty()) held_.erase(0, std::min(held_.find_first_not_of(kBlanks), held_.size()));
  }
  mode_ = Mode::content;
  return !held_.empty();
}

}  // namespace harmonics::engine
