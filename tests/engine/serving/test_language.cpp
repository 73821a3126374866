// A language model over HTTP: the APIs of OpenAI and Ollama, streams, limits, and disconnecting clients.
#include <catch2/catch.hpp>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <boost/json.hpp>

#include "engine/serving/http_server.hpp"
#include "engine/serving/language_service.hpp"
#include "engine/serving/page.hpp"
#include "tests/engine/language/small_language.hpp"
#include "tests/engine/serving/text_client.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
namespace json = boost::json;

namespace {

struct ServedLanguage {
  explicit ServedLanguage(TextWorker::Settings limits = {}, ServiceSettings settings = {})
      : worker(small.decoder, *small.tokenizer, limits),
        service(std::move(settings), {"small", "llama", 1, 1, 400, 262, 0}, worker, *small.tokenizer, format,
                usual(*small.tokenizer)) {}

  static ContinuationSettings usual(const Tokenizer& tokenizer) {
    ContinuationSettings settings;
    settings.tokens = 400;
    settings.temperature = 0;
    settings.ends = answer_ends(tokenizer);
    return settings;
  }

  SmallLanguage small;
  ChatTemplate format = ChatTemplate::usual();
  TextWorker worker;
  LanguageService service;
};

ServiceRequest text_request(const std::string& method, const std::string& path, const std::string& body = "") {
  ServiceRequest request;
  request.method = method;
  request.path = path;
  request.host = "127.0.0.1:1";
  request.body = body;
  return request;
}

// Waits for the reply, and reads its stream to the end.
ServiceReply told(HttpHandler& service, ServiceRequest request) {
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

ServiceReply posted(HttpHandler& service, const std::string& path, const std::string& body) {
  return told(service, text_request("POST", path, body));
}

const std::string kAsk = R"("messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5)";

// Returns the JSON objects after "data: ".
std::vector<json::value> events_of(const std::string& body) {
  std::vector<json::value> all;
  for (size_t at = 0, end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    REQUIRE(body.compare(at, 6, "data: ") == 0);
    if (body.substr(at + 6, end - at - 6) != "[DONE]") all.push_back(json::parse(body.substr(at + 6, end - at - 6)));
  }
  return all;
}

std::string string_at(const json::value& value, const char* pointer) {
  return std::string(value.at_pointer(pointer).as_string());
}

}  // namespace

TEST_CASE("language service: a chat is answered, in one piece and as a stream") {
  ServedLanguage served;
  const ServiceReply whole = posted(served.service, "/v1/chat/completions", "{" + kAsk + "}");
  REQUIRE(whole.status == 200);
  const json::value reply = json::parse(whole.body);
  CHECK(string_at(reply, "/object") == "chat.completion");
  CHECK(string_at(reply, "/model") == "small");
  CHECK(string_at(reply, "/choices/0/message/role") == "assistant");
  CHECK(reply.at_pointer("/usage/completion_tokens").as_int64() <= 5);
  const std::string text = string_at(reply, "/choices/0/message/content");

  const ServiceReply streamed = posted(served.service, "/v1/chat/completions",
                                       "{" + kAsk + R"(, "stream": true, "stream_options": {"include_usage": true}})");
  REQUIRE(streamed.status == 200);
  CHECK(streamed.content_type == "text/event-stream");
  CHECK(streamed.body.ends_with("data: [DONE]\n\n"));
  const std::vector<json::value> events = events_of(streamed.body);
  REQUIRE(events.size() >= 3);
  std::string joined;
  for (const json::value& event : events)
    if (!event.at("choices").as_array().empty())
      if (const auto* content = event.at_pointer("/choices/0/delta").as_object().if_contains("content"))
        joined += std::string(content->as_string());
  CHECK(joined == text);
  CHECK(events.back().at_pointer("/usage/completion_tokens") == reply.at_pointer("/usage/completion_tokens"));
  CHECK(events[events.size() - 2].at_pointer("/choices/0/finish_reason") ==
        reply.at_pointer("/choices/0/finish_reason"));
  CHECK(events.back().at_pointer("/usage/prompt_tokens_details/cached_tokens").as_int64() > 0);
}

TEST_CASE("language service: completions, log-probabilities, stop and JSON schemas") {
  ServedLanguage served;
  const json::value plain = json::parse(
      posted(served.service, "/v1/completions", R"({"prompt": "abc", "max_tokens": 4, "logprobs": 2})").body);
  CHECK(string_at(plain, "/object") == "text_completion");
  CHECK(plain.at_pointer("/choices/0/logprobs/tokens").as_array().size() ==
        static_cast<size_t>(plain.at_pointer("/usage/completion_tokens").as_int64()));
  const json::array& offsets = plain.at_pointer("/choices/0/logprobs/text_offset").as_array();
  CHECK(string_at(plain, "/choices/0/logprobs/tokens/0").starts_with("bytes:\\x"));  // a part of a character
  CHECK(offsets.at(0) == 0);
  CHECK(offsets.at(1) == 1);
  const json::value ids =
      json::parse(posted(served.service, "/v1/completions", R"({"prompt": [1, 100, 101], "max_tokens": 2})").body);
  CHECK(ids.at_pointer("/usage/prompt_tokens").as_int64() == 3);

  const json::value chosen = json::parse(
      posted(served.service, "/v1/chat/completions",
             "{" + kAsk +
                 R"(, "temperature": 1, "seed": 3, "logprobs": true, "top_logprobs": 1, "max_completion_tokens": 60,
              "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema":
                {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}}}})")
          .body);
  const json::value object = json::parse(string_at(chosen, "/choices/0/message/content"));
  CHECK(object.at("ok").is_bool());
  const json::array& tokens = chosen.at_pointer("/choices/0/logprobs/content").as_array();
  REQUIRE_FALSE(tokens.empty());
  CHECK(tokens[0].at("logprob").as_double() <= 0);
  CHECK(tokens[0].at("top_logprobs").as_array().size() == 1);
}

TEST_CASE("language service: calls of tools are read from the answer") {
  ServedLanguage served;
  const std::string grammar = R"(root ::= \"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"x\\\": 1}}\")";
  const std::string body = R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100, "grammar": ")" +
                           grammar + R"(", "tools": [{"type": "function", "function": {"name": "f"}}])";
  const json::value reply = json::parse(posted(served.service, "/v1/chat/completions", body + "}").body);
  CHECK(string_at(reply, "/choices/0/finish_reason") == "tool_calls");
  CHECK(string_at(reply, "/choices/0/message/tool_calls/0/function/name") == "f");
  CHECK(string_at(reply, "/choices/0/message/tool_calls/0/function/arguments") == R"({"x":1})");
  const ServiceReply streamed = posted(served.service, "/v1/chat/completions", body + R"(, "stream": true})");
  CHECK(streamed.body.find(R"("tool_calls":[{"index":0,)") != std::string::npos);
}

TEST_CASE("language service: the end of an answer in ChatML ends it also where it is no token") {
  ServedLanguage served;
  const auto others = byte_tokenizer("<|other|>");
  LanguageService service({}, {"small", "llama", 1, 1, 400, 262, 0}, served.worker, *others, served.format,
                          ServedLanguage::usual(*others));
  const json::value ended = json::parse(
      posted(service, "/v1/chat/completions",
             R"({"messages": [{"role": "user", "content": "Hi"}], "grammar": "root ::= \"yes<|im_end|>no\""})")
          .body);
  CHECK(string_at(ended, "/choices/0/message/content") == "yes");
}

TEST_CASE("language service: Ollama's routes") {
  ServedLanguage served;
  const json::value whole = json::parse(
      posted(served.service, "/api/chat",
             R"({"messages": [{"role": "user", "content": "Hi"}], "stream": false, "options": {"num_predict": 5}})")
          .body);
  CHECK(whole.at("done").as_bool());
  CHECK(string_at(whole, "/message/role") == "assistant");
  CHECK(whole.at("eval_count").as_int64() <= 5);
  const ServiceReply lines =
      posted(served.service, "/api/generate",
             R"({"prompt": "Hi", "raw": true, "options": {"num_predict": 3, "temperature": 0}})");
  CHECK(lines.content_type == "application/x-ndjson");
  CHECK(lines.body.find(R"("done":true)") > lines.body.find(R"("done":false)"));
  for (const char* path : {"/api/tags", "/api/ps", "/api/version", "/v1/models", "/healthz", "/openapi.json"}) {
    INFO(path);
    const ServiceReply reply = told(served.service, text_request("GET", path));
    CHECK(reply.status == 200);
    CHECK(json::parse(reply.body).is_object());
  }
  // VS Code, for example, needs 0.6.4; versions of this program say nothing about Ollama's routes.
  const json::value version = json::parse(told(served.service, text_request("GET", "/api/version")).body);
  CHECK(string_at(version, "/version") == "0.13.3");
  CHECK_FALSE(string_at(version, "/harmonics").empty());
  const json::value listed = json::parse(told(served.service, text_request("GET", "/v1/models")).body);
  const json::value& model = listed.at("data").at(0);
  const std::string name(model.at("id").as_string());
  CHECK(json::parse(told(served.service, text_request("GET", "/v1/models/" + name)).body) == model);
  CHECK(told(served.service, text_request("GET", "/v1/models/" + name + "2")).status == 404);
  CHECK(json::parse(posted(served.service, "/api/show", "{}").body).at("template").is_string());
  CHECK(told(served.service, text_request("GET", "/metrics")).body.find("harmonics_text_requests_total 2\n") !=
        std::string::npos);
}

TEST_CASE("language service: settings of other servers' clients are understood") {
  ServedLanguage served;
  const auto said = [&](const std::string& settings) {
    const ServiceReply reply = posted(served.service, "/v1/chat/completions", "{" + kAsk + ", " + settings + "}");
    INFO(reply.body);
    CHECK(reply.status == 200);
    return string_at(json::parse(reply.body), "/choices/0/message/content");
  };
  // The most likely token holds any share of the probability.
  CHECK(said(R"("max_tokens": 8, "top_p": 0, "temperature": 2)") == said(R"("max_tokens": 8, "temperature": 0)"));
  // -1: up to the end of the context, as without a limit
  CHECK(said(R"("max_tokens": -1, "seed": 3)") == said(R"("max_tokens": 16777216, "seed": 3)"));
  CHECK(said(R"("max_completion_tokens": -1, "max_tokens": 4, "seed": 3)") == said(R"("max_tokens": 4, "seed": 3)"));
  CHECK(posted(served.service, "/v1/chat/completions", "{" + kAsk + R"(, "max_tokens": 0})").status == 400);
}

TEST_CASE("language service: what is wrong with a request is said") {
  ServedLanguage served;
  const auto message = [&](const std::string& body, const char* path = "/v1/chat/completions") {
    const ServiceReply reply = posted(served.service, path, body);
    CHECK(reply.status == 400);
    return string_at(json::parse(reply.body), "/error/message");
  };
  CHECK(message("x").find("the body is not JSON") == 0);
  CHECK(message("{}") == "'messages' is missing: give a list of messages");
  CHECK(message("{" + kAsk + R"(, "temperature": "hot"})") ==
        R"('temperature' is "hot"; it must be a number from 0 to 100)");
  CHECK(message("{" + kAsk + R"(, "n": 0})") == "'n' is 0; it must be a whole number from 1 to 128");
  CHECK(message("{" + kAsk + R"(, "stream": 1})") == "'stream' is 1; it must be true or false");
  CHECK(message("{" + kAsk + R"(, "grammar": "x"})").find("the grammar, line 1") == 0);
  CHECK(message(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})").find("'image_url'") !=
        std::string::npos);
  CHECK(message(R"({"prompt": ")" + std::string(500, 'x') + R"(", "stream": true})", "/v1/completions")
            .find("but the context holds 400") != std::string::npos);
  CHECK(message(R"({"prompt": [262]})", "/v1/completions").find("outside the vocabulary") != std::string::npos);
  CHECK(posted(served.service, "/v1/nothing", "").status == 404);
  CHECK(told(served.service, text_request("GET", "/v1/completions")).status == 405);
  ServiceRequest other = text_request("GET", "/v1/models");
  other.host = "example.org";
  CHECK(told(served.service, other).status == 403);
}

TEST_CASE("language service: a key is needed where one is set") {
  ServedLanguage served({}, {"secret-key", true, true});
  ServiceRequest request = text_request("GET", "/v1/models");
  CHECK(told(served.service, request).status == 401);
  for (const char* given : {"Bearer secret-key", "bearer secret-key"}) {
    request.authorization = given;
    CHECK(told(served.service, request).status == 200);
  }
  put_chat_page(served.service);
  CHECK(told(served.service, text_request("GET", "/")).status == 200);
  CHECK(told(served.service, text_request("GET", "/chat.js")).status == 200);
}

TEST_CASE("text worker: what a request throws fails that request alone") {
  ServedLanguage served;
  std::mutex mutex;
  std::condition_variable came;
  std::string said;
  const auto job = std::make_shared<TextJob>();
  job->prepare = []() -> TextJob::Prompt { throw std::length_error("too long for a text"); };
  job->tell = [&](const TextJob::News& news) {
    const std::lock_guard lock(mutex);
    said = news.error ? news.error->what() : "no error";
    came.notify_all();
  };
  REQUIRE(served.worker.add(job));
  std::unique_lock lock(mutex);
  REQUIRE(came.wait_for(lock, std::chrono::seconds(60), [&] { return !said.empty(); }));
  CHECK(said.find("too long for a text") != std::string::npos);
  lock.unlock();
  const ServiceReply next =
      told(served.service, text_request("POST", "/v1/completions", R"({"prompt": "a", "max_tokens": 2})"));
  CHECK(next.status == 200);
  CHECK(served.worker.report().failed == 1);
}

TEST_CASE("text worker: texts are written in turn, and give what they give alone") {
  ServedLanguage served({.sequences = 3, .queue = 16});
  std::mutex mutex;
  std::condition_variable came;
  std::map<int, std::string> texts;
  const auto body = [](int i) {
    return R"({"prompt": "text )" + std::to_string(i) + R"( and more", "max_tokens": 6})";
  };
  for (int i = 0; i < 8; ++i)
    served.service.handle(text_request("POST", "/v1/completions", body(i)), [&, i](ServiceReply reply) {
      const std::lock_guard lock(mutex);
      texts[i] = std::move(reply.body);
      came.notify_all();
    });
  std::unique_lock lock(mutex);
  REQUIRE(came.wait_for(lock, std::chrono::seconds(100), [&] { return texts.size() == 8; }));
  lock.unlock();
  ServedLanguage alone;
  for (int i = 0; i < 8; ++i) {
    const json::value found = json::parse(texts[i]),
                      expected = json::parse(posted(alone.service, "/v1/completions", body(i)).body);
    CHECK(found.at_pointer("/choices/0/text") == expected.at_pointer("/choices/0/text"));
  }
  CHECK(served.worker.drain(std::chrono::seconds(10)));
  const ServiceReply late = posted(served.service, "/v1/completions", body(0));
  CHECK(late.status == 503);
  CHECK(string_at(json::parse(late.body), "/error/message") == "the server is shutting down");
  CHECK(served.worker.report().refused == 1);
}

TEST_CASE("language service: streams arrive in chunks, and the connection is used again") {
  ServedLanguage served;
  HttpServer server(served.service, {"127.0.0.1", 0, true});
  TextClient client(server.port());
  for (int i = 0; i < 2; ++i) {
    client.post("/v1/chat/completions", "{" + kAsk + R"(, "stream": true})");
    const std::string heard = client.hear([](const std::string& s) { return s.ends_with("\r\n0\r\n\r\n"); });
    CHECK(heard.find("HTTP/1.1 200 OK") == 0);
    CHECK(heard.find("Transfer-Encoding: chunked") != std::string::npos);
    CHECK(heard.find("Content-Type: text/event-stream") != std::string::npos);
    CHECK(heard.find("data: [DONE]") != std::string::npos);
  }
}

namespace {

// Keeps requests unanswered until give() is called.
class HeldBack : public HttpHandler {
 public:
  void handle(ServiceRequest request, Answer answer) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_.push_back(std::move(answer));
    gone_ = request.gone;
    body_ = std::move(request.body);
    came_.notify_all();
  }
  const std::string& known_paths() const override { return none_; }
  void await(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    REQUIRE(came_.wait_for(lock, std::chrono::seconds(60), [&] { return held_.size() == count; }));
  }
  std::string body() {  // of the last request
    const std::lock_guard<std::mutex> lock(mutex_);
    return body_;
  }
  // Waits until the client of the last request has disconnected.
  bool await_gone() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!*gone_ && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return *gone_;
  }
  void give(const std::string& body) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Answer& answer : held_) answer({200, "text/plain", body, {}});
    held_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Answer> held_;
  std::shared_ptr<const std::atomic<bool>> gone_;
  std::string body_;
  const std::string none_;
};

}  // namespace

TEST_CASE("http: a server that finishes sends the replies of its requests whole") {
  HeldBack handler;
  const std::string body(size_t{16} << 20, 'x');  // more than the buffers of a socket
  std::optional<HttpServer> server(std::in_place, handler, ListenAddress{"127.0.0.1", 0, true});
  CHECK(server->finish(std::chrono::milliseconds(0)));  // without requests
  server.emplace(handler, ListenAddress{"127.0.0.1", 0, true});
  TextClient client(server->port());
  client.post("/", "{}");
  handler.await(1);
  CHECK_FALSE(server->finish(std::chrono::milliseconds(0)));
  handler.give(body);
  std::string heard;
  std::thread reader([&] { heard = client.hear([](const std::string& s) { return s.ends_with("xxxx!"); }); });
  const bool finished = server->finish(std::chrono::seconds(60));
  server.reset();
  reader.join();
  CHECK(finished);
  CHECK(heard.size() > body.size());
}

TEST_CASE("http: a client that closes or aborts its connection is gone") {
  for (const bool aborts : {false, true}) {
    INFO(aborts);
    for (const char* more : {"", "\r\n", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"}) {  // of the next request
      INFO(more);
      HeldBack handler;
      HttpServer server(handler, {"127.0.0.1", 0, true});
      std::optional<TextClient> client(std::in_place, server.port());
      client->post("/", "{}");
      handler.await(1);
      client->send(more);
      if (aborts) client->abort_at_end();
      client.reset();
      CHECK(handler.await_gone());
      handler.give("");
    }
  }
}

TEST_CASE("http: a request that arrives before the reply to the previous one is answered") {
  HeldBack handler;
  HttpServer server(handler, {"127.0.0.1", 0, true});
  TextClient client(server.port());
  const std::string body(20000, 'x');
  client.post("/", "{}");
  handler.await(1);
  client.post("/", body);
  handler.give("one");
  handler.await(1);
  CHECK(handler.body() == body);
  handler.give("two");
  const std::string heard = client.hear([](const std::string& s) { return s.ends_with("two"); });
  CHECK(heard.find("one") != std::string::npos);
}

TEST_CASE("http: a compressed body is refused") {
  HeldBack handler;
  HttpServer server(handler, {"127.0.0.1", 0, true});
  TextClient client(server.port());
  client.send("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08");
  const std::string heard = client.hear([](const std::string& s) { return s.ends_with("}\n"); });
  CHECK(heard.starts_with("HTTP/1.1 415"));
  CHECK(heard.find("'gzip'") != std::string::npos);
}

TEST_CASE("language service: texts and connections end when their clients are gone") {
  for (const bool aborts : {false, true}) {
    INFO(aborts);
    ServedLanguage served;
    HttpServer server(served.service, {"127.0.0.1", 0, true});
    for (const char* heard : {"data: ", "HTTP/1.1 200", ""}) {
      TextClient client(server.port());
      client.post("/v1/completions",
                  R"({"prompt": "a", "max_tokens": 300, "stream": true, "grammar": "root ::= [a-z]{300}"})");
      if (*heard) client.hear([&](const std::string& s) { return s.find(heard) != std::string::npos; });
      if (aborts) client.abort_at_end();
    }
    CHECK(server.finish(std::chrono::seconds(60)));
    CHECK(served.worker.drain(std::chrono::seconds(60)));
    CHECK(served.worker.report().active == 0);
  }
}
