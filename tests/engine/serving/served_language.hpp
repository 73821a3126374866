// A small language model with its service, and requests to a service.
#pragma once

#include <catch2/catch.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "engine/serving/language_service.hpp"
#include "tests/engine/language/small_language.hpp"

namespace harmonics::engine::testing {

struct LanguageOverHttp {
  SmallLanguage small{};
  ChatTemplate format = ChatTemplate::usual();
  TextWorker worker{small.decoder, *small.tokenizer, {}};
  LanguageService service{
      {}, {"small", "llama", 1, 1, 400, 262, 0}, worker, *small.tokenizer, format, usual(*small.tokenizer)};

  static ContinuationSettings usual(const Tokenizer& tokenizer) {
    ContinuationSettings settings;
    settings.tokens = 400;
    settings.temperature = 0;
    settings.ends = answer_ends(tokenizer);
    return settings;
  }
};

// Sends the request, waits for the reply, and reads its stream to the end.
inline ServiceReply reply_to(HttpHandler& service, const std::string& method, const std::string& path,
                             const std::string& body = "") {
  ServiceRequest request;
  request.method = method;
  request.path = path;
  request.host = "127.0.0.1:1";
  request.body = body;
  std::mutex mutex;
  std::condition_variable came;
  std::optional<ServiceReply> reply;
  service.handle(std::move(request), [&](ServiceReply r) {
    const std::lock_guard lock(mutex);
    reply = std::move(r);
    came.notify_all();
  });
  std::unique_lock lock(mutex);
  REQUIRE(came.wait_for(lock, std::chrono::seconds(60), [&] { return reply.has_value(); }));
  for (bool last = !reply->stream; !last;) {
    bool heard = false;
    lock.unlock();
    reply->stream->next([&](std::string more, bool end) {
      const std::lock_guard inner(mutex);
      reply->body += more;
      last = end;
      heard = true;
      came.notify_all();
    });
    lock.lock();
    REQUIRE(came.wait_for(lock, std::chrono::seconds(60), [&] { return heard; }));
  }
  return *reply;
}

}  // namespace harmonics::engine::testing
