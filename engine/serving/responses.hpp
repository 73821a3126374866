// OpenAI's Responses API: conversion of requests to chat requests, replies with their events, and a store of responses
// that later requests can continue.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "engine/language/chat_answer.hpp"
#include "engine/language/continuation.hpp"

namespace harmonics::engine {

// Stores the most recent responses in memory. Thread-safe.
class ResponseStore {
 public:
  static constexpr size_t kMost = 256;                    // responses; the oldest are dropped
  static constexpr size_t kMostBytes = size_t{64} << 20;  // limit for their texts

  struct Kept {
    boost::json::array messages;  // of the conversation including the answer, without instructions
    boost::json::object response;
  };
  void keep(const std::string& id, Kept kept);
  std::optional<Kept> find(const std::string& id) const;
  bool erase(const std::string& id);

 private:
  struct Sized {
    Kept kept;
    size_t bytes = 0;
  };
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Sized> all_;
  std::deque<std::string> order_;  // oldest first; includes erased ones
  size_t bytes_ = 0;
};

// Fields of a request that its reply repeats or stores.
struct ResponseRecord {
  boost::json::object repeated;          // instructions, tools, text, ...
  boost::json::array messages;           // of the conversation, without instructions
  std::shared_ptr<ResponseStore> store;  // null: the response is not stored
};

struct ReadResponse {
  std::string chat;  // body of the equivalent request to /v1/chat/completions
  std::shared_ptr<const ResponseRecord> record;
};
// Parses a request. Throws ErrorKind::Usage with the name of an invalid field, including a previous_response_id that is
// not in `store`.
ReadResponse read_response_request(std::string_view body, const std::shared_ptr<ResponseStore>& store);

// Writes the reply, as events and as a whole.
class ResponseWriter {
 public:
  ResponseWriter(std::shared_ptr<const ResponseRecord> record, std::string model, std::string id, int64_t now);
  std::string begin();
  // `logprobs`: of the tokens of these parts; empty if they were not requested.
  std::string more(const std::vector<AnswerPart>& parts, boost::json::array logprobs = {});
  std::string end(const Continuation& done);
  std::string failed(const std::string& message);
  boost::json::object whole() const { return response_; }  // after end()

 private:
  std::string event(const char* name, boost::json::object object);
  std::string open(AnswerPart::Kind kind);
  std::string close(const char* status = "completed");
  std::string add_call(const AnswerPart& call);
  boost::json::object item(const char* status) const;
  boost::json::object response(const char* status) const;

  const std::shared_ptr<const ResponseRecord> record_;
  const std::string model_, id_;
  const int64_t now_;
  int64_t number_ = 0;           // number of the next event
  boost::json::array output_;    // closed items
  boost::json::array calls_;     // tool calls in chat format
  std::string text_;             // text of the open item
  boost::json::array logprobs_;  // of its tokens
  std::string said_;             // text of all messages
  std::optional<AnswerPart::Kind> open_;
  boost::json::object response_;
};

}  // namespace harmonics::engine
