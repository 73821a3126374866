// Requests for text generation in OpenAI's and Ollama's HTTP APIs, and their replies.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "engine/language/chat_answer.hpp"
#include "engine/language/chat_template.hpp"
#include "engine/language/continuation.hpp"

namespace harmonics::engine {

enum class TextApi { chat, completion, responses, ollama_chat, ollama_generate };

struct ResponseRecord;
class ResponseWriter;

// A prompt that is not a conversation.
struct PlainPrompt {
  std::string text;
  std::vector<int32_t> ids = {};  // instead of `text`
  bool begin = true;              // the begin token of the vocabulary precedes `text`
};

struct TextRequest {
  TextApi api = TextApi::chat;
  std::string model;                       // as named by the client
  std::optional<ChatPrompt> conversation;  // empty: use `prompts`
  std::vector<PlainPrompt> prompts;
  size_t each = 1;                        // number of texts for each prompt
  bool echo = false;                      // texts begin with their prompts, and so do their log probabilities
  std::optional<size_t> prompt_logprobs;  // report the prompt's tokens in vLLM's form, with this number of likely ones
  bool continues = false;                 // the answer continues the last message of the conversation
  bool loads = false;                     // Ollama: no text is wanted; the client only expects the model to be loaded
  bool unloads = false;                   // Ollama: with `loads`, the client no longer needs the model, which stays
  ContinuationSettings settings;
  bool seeded = false;                             // the client chose settings.seed
  std::string schema;                              // JSON schema of an answer that calls no tool; "": none
  std::string rules;                               // instead of a schema: the rule `text` of such an answer, GBNF
  std::string grammar;                             // of all that the model writes, GBNF; "": none
  bool stream = false, usage = false;              // usage: report token counts at the end of a stream
  bool tools = false, one_call = false;            // one_call: further calls are dropped
  std::optional<std::string> call = std::nullopt;  // the answer must call this tool; "": any tool
  std::shared_ptr<const ResponseRecord> response = nullptr;  // TextApi::responses: fields for its reply

  size_t texts() const { return each * (conversation ? 1 : prompts.size()); }
};

// Parses the body of a request; `usual` provides defaults. A body of TextApi::responses is given in chat format. Throws
// ErrorKind::Usage with the name of an invalid field.
TextRequest read_text_request(TextApi api, std::string_view body, const ContinuationSettings& usual);

// Returns the reply to a request that only loads the model.
std::string loaded_reply(const TextRequest& request, int64_t now);

// Writes one text of a reply. Replies of several texts have one object for each.
class TextReply {
 public:
  // `prompt`: the text that the answer continues. `index`: of the text. The tokenizer must outlive this object.
  TextReply(const TextRequest& request, const Tokenizer& tokenizer, const std::string& prompt, std::string id,
            int64_t now, size_t index = 0);
  // Sets the scores of the prompt, before its first use.
  void set_prompt(std::shared_ptr<const PromptScores> scores) { prompt_ = std::move(scores); }
  // Return pieces of a stream for parts of the answer; "" if there is nothing to send yet.
  std::string begin();
  std::string more(const std::string& text, const Continuation& done);
  std::string end(const Continuation& done);
  std::string failed(const Error& error) const;  // an error within a stream
  // Ends a stream after the ends of all texts. `total`: sums over them.
  std::string close(const Continuation& total) const;
  // Return the text in a reply that is not a stream, and that reply; to be called after end().
  boost::json::object choice(const Continuation& done) const;
  std::string whole(const Continuation& total, boost::json::array choices) const;
  const char* stream_type() const;

  // `code`: OpenAI's name of the error, by which clients recognise it; null: none. `field`: the invalid one, or "".
  static std::string error_body(TextApi api, const std::string& message, int status, const char* code = nullptr,
                                const std::string& field = "");

 private:
  std::string piece(std::vector<AnswerPart> parts, const Continuation& done);
  std::string line(boost::json::object object) const;
  boost::json::object head(const char* object) const;
  boost::json::object message() const;
  boost::json::value calls(bool indexed) const;
  boost::json::array token_probabilities(const Continuation& done, size_t from) const;
  boost::json::value probabilities(const Continuation& done, size_t from) const;
  boost::json::value text_probabilities(const Continuation& done, size_t from, size_t to, bool prompt) const;
  boost::json::array prompt_probabilities() const;
  boost::json::object ollama(const Continuation* done) const;
  const char* reason(const Continuation& done) const;

  const TextApi api_;
  const std::string model_, id_;
  const int64_t now_;
  const size_t index_;
  const bool usage_, probabilities_, one_call_;
  const std::optional<size_t> prompt_logprobs_;
  const bool scored_echo_;  // log probabilities begin with those of the prompt
  bool told_prompt_ = false;
  std::string prompt_text_;  // only with scored_echo_
  std::shared_ptr<const PromptScores> prompt_;
  bool has_call_ = false;
  const Tokenizer& tokenizer_;
  std::optional<AnswerReader> reader_;      // of chats
  std::shared_ptr<ResponseWriter> writer_;  // of TextApi::responses
  std::string content_, reasoning_;
  std::string echoed_;  // the prompt, if the text begins with it and nothing was sent yet
  std::vector<AnswerPart> calls_;
  size_t told_ = 0, told_calls_ = 0;  // number of token probabilities, and of calls, already sent
};

// Formats a time as "2026-11-26T12:00:00Z".
std::string timestamp(int64_t seconds);

}  // namespace harmonics::engine
