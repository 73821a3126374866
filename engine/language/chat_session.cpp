#include "engine/language/chat_session.hpp"

#include <algorithm>

#include <boost/json.hpp>
#include <fmt/core.h>

namespace harmonics::engine {

namespace {

bool has_role(const boost::json::value& message, const char* role) { return message.at("role").as_string() == role; }

}  // namespace

std::vector<int32_t> prompt_tokens(const std::string& prompt, const ChatTemplate& format, const Tokenizer& tokenizer) {
  return tokenizer.encode(prompt, {.begin = !format.own(), .end = false, .special = true});
}

ChatSession::ChatSession(Session& session, const Tokenizer& tokenizer, const ChatTemplate& format, Overflow overflow)
    : session_(session), tokenizer_(tokenizer), format_(format), overflow_(overflow) {}

void ChatSession::set_system(const std::string& text) {
  const bool there = !messages_.empty() && has_role(messages_[0], "system");
  if (there) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), boost::json::object{{"role", "system"}, {"content", text}});
}

void ChatSession::clear() {
  const bool there = !messages_.empty() && has_role(messages_[0], "system");
  messages_.erase(messages_.begin() + there, messages_.end());
}

bool ChatSession::drop_answer() {
  if (messages_.empty() || !has_role(messages_.back(), "assistant")) return false;
  messages_.pop_back();
  return true;
}

void ChatSession::set_messages(const boost::json::value& messages) {
  const auto* all = messages.if_array();
  if (!all) throw Error(ErrorKind::Usage, "a conversation is a list of messages");
  for (const boost::json::value& message : *all) {
    const auto* fields = message.if_object();
    const auto is_text = [&](const char* name) {
      const boost::json::value* value = fields ? fields->if_contains(name) : nullptr;
      return value && value->is_string();
    };
    if (!is_text("role") || !is_text("content"))
      throw Error(ErrorKind::Usage, "a message of a conversation has the strings 'role' and 'content'");
  }
  messages_ = *all;
}

std::string ChatSession::rendered() const {
  ChatPrompt prompt;
  prompt.messages = messages_;
  prompt.now = now;
  return format_.render(prompt);
}

// Removes the first message of the user and the answers to it, but never the last message. Returns whether it did.
bool ChatSession::forget_oldest() {
  const size_t first = !messages_.empty() && has_role(messages_[0], "system");
  size_t end = first + 1;
  while (end < messages_.size() && !has_role(messages_[end], "user")) ++end;
  if (end >= messages_.size()) return false;
  messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(first),
                  messages_.begin() + static_cast<std::ptrdiff_t>(end));
  return true;
}

std::vector<int32_t> ChatSession::fitted(int64_t wanted, size_t& forgotten, std::string& prompt) {
  const int64_t context = session_.context(), room = std::min(wanted, context / 4);
  const size_t before = messages_.size();
  for (;;) {
    prompt = rendered();
    std::vector<int32_t> ids = prompt_tokens(prompt, format_, tokenizer_);
    forgotten = before - messages_.size();
    const auto count = static_cast<int64_t>(ids.size());
    if (overflow_ == Overflow::shift && count + room > context && forget_oldest()) continue;
    if (count <= context) return ids;
    throw Error(ErrorKind::Usage,
                fmt::format("the conversation has {} tokens, but the context holds {}", count, context), {},
                {"shorten the message, clear the conversation, give a larger --context, or --overflow shift"});
  }
}

ChatAnswer ChatSession::answer(const std::optional<std::string>& message, const ContinuationSettings& settings,
                               const std::function<void(const AnswerPart&)>& emit,
                               const std::function<bool()>& interrupted) {
  const boost::json::array before = messages_;
  ChatAnswer answer;
  const auto take = [&](const std::vector<AnswerPart>& parts) {
    for (const AnswerPart& part : parts) {
      emit(part);
      if (part.kind == AnswerPart::content) answer.content += part.text;
      if (part.kind == AnswerPart::reasoning) answer.reasoning += part.text;
      if (part.kind == AnswerPart::call) answer.calls.push_back(part);
    }
  };
  try {
    if (message) messages_.push_back(boost::json::object{{"role", "user"}, {"content", *message}});
    std::string prompt;
    std::vector<int32_t> ids = fitted(settings.tokens, answer.forgotten, prompt);
    Generation text(session_, tokenizer_, std::move(ids), settings);
    AnswerReader reader({}, prompt);
    while (!text.is_over() && !answer.interrupted) {
      take(reader.push(text.step()));
      answer.interrupted = interrupted();
    }
    take(reader.finish());
    answer.done = text.done();
  } catch (...) {
    messages_ = before;
    throw;
  }
  boost::json::object reply{{"role", "assistant"}, {"content", answer.content}};
  if (!answer.reasoning.empty()) reply["reasoning_content"] = answer.reasoning;
  messages_.push_back(std::move(reply));
  return answer;
}

}  // namespace harmonics::engine
