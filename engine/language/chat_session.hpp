// ChatSession: a conversation with a model. Computes only the new part of each prompt.
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
  size_t forgotten = 0;  // number of messages removed by Overflow::shift
};

// Returns the ids of a prompt that was rendered by the template.
std::vector<int32_t> prompt_tokens(const std::string& prompt, const ChatTemplate& format, const Tokenizer& tokenizer);

class ChatSession {
 public:
  // All arguments must outlive the object.
  ChatSession(Session& session, const Tokenizer& tokenizer, const ChatTemplate& format, Overflow overflow);

  // Sets the system message; "" removes it. Keeps the other messages.
  void set_system(const std::string& text);
  void clear();  // keeps the system message
  // Removes the last answer, so that answer({}) generates another one. Returns false if there is none.
  bool drop_answer();
  // Adds the message, if any, and the answer of the model. Calls `emit` with each part of the answer as it is
  // generated, and `interrupted` after each token; true ends the answer. Throws ErrorKind::Usage if the conversation
  // does not fit into the context; then it is unchanged.
  ChatAnswer answer(const std::optional<std::string>& message, const ContinuationSettings& settings,
                    const std::function<void(const AnswerPart&)>& emit, const std::function<bool()>& interrupted);

  // Replaces the conversation. Throws ErrorKind::Usage if the JSON value is not a list of messages.
  void set_messages(const boost::json::value& messages);
  const boost::json::array& messages() const { return messages_; }
  std::time_t now = 0;  // for templates that print the date

 private:
  std::string rendered() const;
  // Returns the tokens of the conversation, without the oldest messages if they do not fit and Overflow::shift is set.
  std::vector<int32_t> fitted(int64_t wanted, size_t& forgotten, std::string& prompt);
  bool forget_oldest();

  Session& session_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& format_;
  const Overflow overflow_;
  boost::json::array messages_;
};

}  // namespace harmonics::engine
