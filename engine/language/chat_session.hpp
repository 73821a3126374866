// A conversation with a model. Of each prompt only what is new is computed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/json/array.hpp>

#include "engine/language/chat_answer.hpp"
#include "engine/language/chat_template.hpp"
#include "engine/language/continuation.hpp"

namespace harmonics::engine {

struct ChatAnswer {
  std::string content, reasoning;
  std::vector<AnswerPart> calls;
  Continuation done;
  bool interrupted = false;
  size_t forgotten = 0;  // messages that Overflow::shift removed
};

// The ids of a prompt that the template rendered.
std::vector<int32_t> prompt_tokens(const std::string& prompt, const ChatTemplate& format, const Tokenizer& tokenizer);

class ChatSession {
 public:
  // All must outlive it.
  ChatSession(Session& session, const Tokenizer& tokenizer, const ChatTemplate& format, Overflow overflow);

  // "": none. Keeps the other messages.
  void set_system(const std::string& text);
  void clear();  // but for the system message
  // Removes the last answer, so that answer({}) writes another one. Returns false if there is none.
  bool drop_answer();
  // Adds the message and the model's answer. Calls `emit` with each part of the answer as it is generated, and
  // `interrupted` after each token; true ends the answer. Throws ErrorKind::Usage if the conversation does not fit;
  // then it is unchanged.
  ChatAnswer answer(const std::optional<std::string>& message, const ContinuationSettings& settings,
                    const std::function<void(const AnswerPart&)>& emit, const std::function<bool()>& interrupted);

  // Replaces the conversation. Throws ErrorKind::Usage for JSON that is no list of messages.
  void set_messages(const boost::json::value& messages);
  const boost::json::array& messages() const { return messages_; }
  std::time_t now = 0;  // for templates that write the date

 private:
  std::string rendered() const;
  // The tokens of the conversation, shortened where it may be.
  std::vector<int32_t> fitted(int64_t wanted, size_t& forgotten, std::string& prompt);
  bool forget_oldest();

  Session& session_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& format_;
  const Overflow overflow_;
  boost::json::array messages_;
};

}  // namespace harmonics::engine
