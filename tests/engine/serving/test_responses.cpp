// OpenAI's Responses API, and text embeddings, over HTTP.
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>

#include <boost/json.hpp>

#include "engine/serving/embedding_service.hpp"
#include "engine/serving/responses.hpp"
#include "tests/engine/serving/served_language.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
namespace json = boost::json;

namespace {

// Returns name and data of each event.
std::vector<std::pair<std::string, json::value>> named_events(const std::string& body) {
  std::vector<std::pair<std::string, json::value>> all;
  for (size_t at = 0, end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string event = body.substr(at, end - at);
    const size_t line = event.find('\n');
    REQUIRE(event.rfind("event: ", 0) == 0);
    REQUIRE(event.compare(line, 7, "\ndata: ") == 0);
    all.emplace_back(event.substr(7, line - 7), json::parse(event.substr(line + 7)));
  }
  return all;
}

std::string text_in(const json::value& value, const char* pointer) {
  return std::string(value.at_pointer(pointer).as_string());
}

ResponseRecord record_of(const std::string& body, const std::shared_ptr<ResponseStore>& store, json::value& chat) {
  ReadResponse read = read_response_request(body, store);
  chat = json::parse(read.chat);
  return *read.record;
}

std::string refusal_of_body(const std::string& body) {
  try {
    read_response_request(body, std::make_shared<ResponseStore>());
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("responses: a text is answered, in one piece and as named events") {
  LanguageOverHttp served;
  const std::string ask = R"("input": "Hi", "instructions": "Be brief", "max_output_tokens": 5)";
  const ServiceReply whole = reply_to(served.service, "POST", "/v1/responses", "{" + ask + "}");
  REQUIRE(whole.status == 200);
  const json::value reply = json::parse(whole.body);
  CHECK(text_in(reply, "/object") == "response");
  CHECK(text_in(reply, "/instructions") == "Be brief");
  CHECK(text_in(reply, "/model") == "small");
  CHECK(text_in(reply, "/output/0/role") == "assistant");
  CHECK(reply.at_pointer("/usage/output_tokens").as_int64() <= 5);
  const bool cut = text_in(reply, "/status") == "incomplete";
  if (cut) CHECK(text_in(reply, "/incomplete_details/reason") == "max_output_tokens");
  const std::string text = text_in(reply, "/output/0/content/0/text");
  CHECK(text_in(reply, "/output/0/status") == text_in(reply, "/status"));

  const ServiceReply streamed = reply_to(served.service, "POST", "/v1/responses", "{" + ask + R"(, "stream": true})");
  REQUIRE(streamed.status == 200);
  CHECK(streamed.content_type == "text/event-stream");
  std::string deltas;
  int64_t number = 0;
  const auto events = named_events(streamed.body);
  for (const auto& [name, data] : events) {
    CHECK(text_in(data, "/type") == name);
    CHECK(data.at("sequence_number").as_int64() == number++);
    if (name == "response.output_text.delta") deltas += text_in(data, "/delta");
  }
  CHECK(deltas == text);
  CHECK(events.front().first == "response.created");
  CHECK(events.back().first == (cut ? "response.incomplete" : "response.completed"));
  CHECK(text_in(events.back().second, "/response/output/0/content/0/text") == text);
}

TEST_CASE("responses: only the last item of an incomplete reply is incomplete") {
  const auto writer = [] { return ResponseWriter(std::make_shared<ResponseRecord>(), "small", "1", 0); };
  const auto statuses = [&](std::vector<AnswerPart> parts, EndOfText end) {
    ResponseWriter written = writer();
    written.begin();
    written.more(parts);
    Continuation done;
    done.end = end;
    const auto events = named_events(written.end(done));
    std::string all = text_in(json::value(written.whole()), "/status") + ":";
    const json::object whole = written.whole();
    for (const json::value& item : whole.at("output").as_array()) all += " " + text_in(item, "/status");
    for (const auto& [name, data] : events)
      if (name == "response.output_item.done") all += ", event " + text_in(data, "/item/status");
    return all;
  };
  const AnswerPart thought{AnswerPart::reasoning, "hm", {}}, text{AnswerPart::content, "Yes", {}},
      call{AnswerPart::call, "f", "{}"};
  CHECK(statuses({thought, text}, EndOfText::tokens) == "incomplete: completed incomplete, event incomplete");
  CHECK(statuses({thought}, EndOfText::context) == "incomplete: incomplete, event incomplete");
  CHECK(statuses({text, call}, EndOfText::tokens) == "incomplete: completed completed");
  CHECK(statuses({thought, text}, EndOfText::model) == "completed: completed completed, event completed");
}

TEST_CASE("responses: log probabilities of the tokens, if they are requested") {
  LanguageOverHttp served;
  const std::string ask = R"("input": "Hi", "max_output_tokens": 4, "temperature": 0)";
  const json::value plain = json::parse(reply_to(served.service, "POST", "/v1/responses", "{" + ask + "}").body);
  CHECK_FALSE(plain.at_pointer("/output/0/content/0").as_object().contains("logprobs"));
  const std::string more = ask + R"(, "include": ["message.output_text.logprobs"], "top_logprobs": 2)";
  const json::value reply = json::parse(reply_to(served.service, "POST", "/v1/responses", "{" + more + "}").body);
  const json::array& all = reply.at_pointer("/output/0/content/0/logprobs").as_array();
  CHECK(static_cast<int64_t>(all.size()) == reply.at_pointer("/usage/output_tokens").as_int64());
  CHECK(all.front().at("top_logprobs").as_array().size() == 2);
  json::array joined;
  for (const auto& [name, data] :
       named_events(reply_to(served.service, "POST", "/v1/responses", "{" + more + R"(, "stream": true})").body))
    if (name == "response.output_text.delta")
      for (const json::value& one : data.at("logprobs").as_array()) joined.push_back(one);
    else if (name == "response.output_text.done")
      CHECK(data.at("logprobs") == all);
  CHECK(joined == all);
}

TEST_CASE("responses: a later request continues one that is kept") {
  LanguageOverHttp served;
  const json::value first =
      json::parse(reply_to(served.service, "POST", "/v1/responses", R"({"input": "Hi", "max_output_tokens": 3})").body);
  const std::string id = text_in(first, "/id");
  const std::string more = R"({"input": "More", "max_output_tokens": 3, "previous_response_id": ")" + id + "\"}";
  const ServiceReply next = reply_to(served.service, "POST", "/v1/responses", more);
  REQUIRE(next.status == 200);
  const json::value second = json::parse(next.body);
  CHECK(text_in(second, "/previous_response_id") == id);
  CHECK(second.at_pointer("/usage/input_tokens").as_int64() > first.at_pointer("/usage/input_tokens").as_int64());
  CHECK(json::parse(reply_to(served.service, "GET", "/v1/responses/" + id).body) == first);
  CHECK(reply_to(served.service, "DELETE", "/v1/responses/" + id).status == 200);
  CHECK(reply_to(served.service, "GET", "/v1/responses/" + id).status == 404);
  CHECK(reply_to(served.service, "DELETE", "/v1/responses/" + id).status == 404);
  const ServiceReply gone = reply_to(served.service, "POST", "/v1/responses", more);
  CHECK(gone.status == 400);
  CHECK(text_in(json::parse(gone.body), "/error/message").find("previous_response_id") != std::string::npos);
  const std::string alone = R"({"input": "Hi", "max_output_tokens": 2, "store": false})";
  const std::string unkept = text_in(json::parse(reply_to(served.service, "POST", "/v1/responses", alone).body), "/id");
  CHECK(reply_to(served.service, "GET", "/v1/responses/" + unkept).status == 404);
}

TEST_CASE("responses: items, tools and formats become those of a chat") {
  json::value chat;
  const ResponseRecord record = record_of(
      R"({"instructions": "S", "temperature": 0.5, "max_output_tokens": 7, "input": [
          {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
          {"type": "reasoning", "summary": []},
          {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c"}]},
          {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"x\":1}"},
          {"type": "function_call_output", "call_id": "1", "output": "d"}],
          "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true}],
          "reasoning": {"effort": "low"},
          "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}})",
      std::make_shared<ResponseStore>(), chat);
  CHECK(record.messages.size() == 3);
  CHECK(text_in(chat, "/messages/0/role") == "system");
  CHECK(text_in(chat, "/messages/1/content") == "ab");
  CHECK(text_in(chat, "/messages/2/content") == "c");
  CHECK(text_in(chat, "/messages/2/tool_calls/0/function/name") == "f");
  CHECK(text_in(chat, "/messages/3/role") == "tool");
  CHECK(text_in(chat, "/messages/3/tool_call_id") == "1");
  CHECK(text_in(chat, "/tools/0/function/name") == "f");
  CHECK(text_in(chat, "/response_format/json_schema/name") == "n");
  CHECK(chat.at("max_tokens").as_int64() == 7);
  CHECK(text_in(chat, "/reasoning_effort") == "low");
}

TEST_CASE("responses: what cannot be done is refused by its field") {
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "'input' is missing"},
      {R"({"input": []})", "'input' is empty"},
      {R"({"input": [{"type": "image_generation_call"}]})", "'image_generation_call'"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})", "the model reads text"},
      {R"({"input": "a", "background": true})", "'background'"},
      {R"({"input": "a", "conversation": "c"})", "'conversation'"},
      {R"({"input": "a", "truncation": "auto"})", "'truncation'"},
      {R"({"input": "a", "tools": [{"type": "web_search"}]})", "'web_search'"},
      {R"({"input": "a", "max_output_tokens": 0})", "'max_output_tokens'"},
      {R"({"input": "a", "previous_response_id": "resp-1"})", "'previous_response_id' is 'resp-1'"},
      {"[]", "not a JSON object"},
      {"{", "is not JSON"}};
  for (const auto& [body, message] : cases) {
    INFO(body);
    CHECK(refusal_of_body(body).find(message) != std::string::npos);
  }
}

TEST_CASE("responses: calls and reasoning are items of their own, with their events") {
  json::value chat;
  const auto store = std::make_shared<ResponseStore>();
  const auto record = std::make_shared<ResponseRecord>(record_of(R"({"input": "a"})", store, chat));
  ResponseWriter writer(record, "m", "resp-1", 5);
  std::string body = writer.begin();
  body += writer.more({{AnswerPart::reasoning, "hm"}, {AnswerPart::content, "So"}, {AnswerPart::content, " be it"}});
  body += writer.more({{AnswerPart::call, "f", R"({"x":1})"}});
  Continuation done;
  done.end = EndOfText::model;
  body += writer.end(done);
  std::vector<std::string> names;
  for (const auto& [name, data] : named_events(body)) names.push_back(name);
  CHECK(names == std::vector<std::string>{
                     "response.created", "response.in_progress", "response.output_item.added",
                     "response.reasoning_text.delta", "response.reasoning_text.done", "response.output_item.done",
                     "response.output_item.added", "response.content_part.added", "response.output_text.delta",
                     "response.output_text.delta", "response.output_text.done", "response.content_part.done",
                     "response.output_item.done", "response.output_item.added",
                     "response.function_call_arguments.delta", "response.function_call_arguments.done",
                     "response.output_item.done", "response.completed"});
  const json::value whole = writer.whole();
  CHECK(text_in(whole, "/output/0/type") == "reasoning");
  CHECK(text_in(whole, "/output/1/content/0/text") == "So be it");
  CHECK(text_in(whole, "/output/2/arguments") == R"({"x":1})");
  const auto kept = store->find("resp-1");
  REQUIRE(kept);
  CHECK(text_in(kept->messages.back(), "/content") == "So be it");
  CHECK(text_in(kept->messages.back(), "/tool_calls/0/function/name") == "f");
  CHECK(named_events(writer.failed("x")).front().first == "response.failed");
}

TEST_CASE("responses: only the last ones are kept") {
  ResponseStore store;
  for (size_t i = 0; i < ResponseStore::kMost + 3; ++i) store.keep(std::to_string(i), {});
  CHECK_FALSE(store.find("2"));
  CHECK(store.find("3"));
  CHECK(store.erase("3"));
  CHECK_FALSE(store.erase("3"));
  ResponseStore::Kept large;
  large.messages.push_back(json::string(ResponseStore::kMostBytes, 'x'));
  store.keep("large", std::move(large));
  CHECK_FALSE(store.find("large"));
}

TEST_CASE("embeddings: texts and tokens over HTTP, in each form") {
  LanguageOverHttp served;
  Embedder embedder(served.small.model, *served.small.executor);
  EmbeddingWorker worker(embedder, *served.small.tokenizer, 8);
  CHECK(reply_to(served.service, "POST", "/v1/embeddings", R"({"input": "Hi"})").status == 501);
  served.service.serve_vectors(worker);
  const ServiceReply two =
      reply_to(served.service, "POST", "/v1/embeddings", R"({"input": ["Hi", "there"], "model": "m"})");
  REQUIRE(two.status == 200);
  const json::value both = json::parse(two.body);
  CHECK(text_in(both, "/model") == "m");
  const auto vector = json::value_to<std::vector<double>>(both.at_pointer("/data/0/embedding"));
  double squares = 0;
  for (const double x : vector) squares += x * x;
  CHECK(squares == Approx(1).margin(1e-5));
  const json::value one = json::parse(reply_to(served.service, "POST", "/v1/embeddings", R"({"input": "there"})").body);
  CHECK(one.at_pointer("/data/0/embedding") == both.at_pointer("/data/1/embedding"));
  CHECK(both.at_pointer("/usage/prompt_tokens").as_int64() > one.at_pointer("/usage/prompt_tokens").as_int64());
  const json::value ids =
      json::parse(reply_to(served.service, "POST", "/v1/embeddings", R"({"input": [[5, 6], [7]]})").body);
  CHECK(ids.at("data").as_array().size() == 2);
  CHECK(ids.at_pointer("/usage/prompt_tokens").as_int64() == 3);

  const json::value packed = json::parse(
      reply_to(served.service, "POST", "/v1/embeddings", R"({"input": "there", "encoding_format": "base64"})").body);
  CHECK(text_in(packed, "/data/0/embedding").size() == (vector.size() * 4 + 2) / 3 * 4);
  const json::value few =
      json::parse(reply_to(served.service, "POST", "/v1/embeddings", R"({"input": "there", "dimensions": 2})").body);
  CHECK(few.at_pointer("/data/0/embedding").as_array().size() == 2);

  const json::value ollama = json::parse(reply_to(served.service, "POST", "/api/embed", R"({"input": "there"})").body);
  CHECK(ollama.at_pointer("/embeddings/0") == one.at_pointer("/data/0/embedding"));
  const json::value old =
      json::parse(reply_to(served.service, "POST", "/api/embeddings", R"({"prompt": "there"})").body);
  CHECK(old.at("embedding") == one.at_pointer("/data/0/embedding"));
  const std::string longer = "\"" + std::string(900, 'x') + "\"";
  CHECK(reply_to(served.service, "POST", "/api/embed", "{\"input\": " + longer + "}").status == 200);  // truncated
  CHECK(reply_to(served.service, "POST", "/v1/embeddings", "{\"input\": " + longer + "}").status == 400);
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "'input' is missing"},
      {R"({"input": ""})", "empty string"},
      {R"({"input": []})", "'input' is an empty list"},
      {R"({"input": [1, -2]})", "a token that is not a number"},
      {R"({"input": [999999]})", "outside the vocabulary"},
      {R"({"input": "a", "dimensions": 100000})", "'dimensions'"},
      {R"({"input": "a", "encoding_format": "x"})", "encoding_format"}};
  for (const auto& [body, message] : cases) {
    INFO(body);
    const ServiceReply refused = reply_to(served.service, "POST", "/v1/embeddings", body);
    CHECK(refused.status == 400);
    CHECK(text_in(json::parse(refused.body), "/error/message").find(message) != std::string::npos);
  }
}

TEST_CASE("embeddings: a client that is gone gets no vectors, and others do") {
  SmallLanguage small;
  Embedder embedder(small.model, *small.executor);
  EmbeddingWorker worker(embedder, *small.tokenizer, 8);
  const auto status = [&](bool gone) {
    ServiceRequest request;
    request.body = R"({"input": ["a", "b"]})";
    request.gone = std::make_shared<const std::atomic<bool>>(gone);
    std::promise<int> said;
    worker.answer(EmbeddingApi::openai, request, "small", [&](const ServiceReply& r) { said.set_value(r.status); });
    std::future<int> reply = said.get_future();
    REQUIRE(reply.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
    return reply.get();
  };
  CHECK(status(true) == 499);
  CHECK(status(false) == 200);
}

TEST_CASE("embeddings: requests that run and wait end with the worker or their clients") {
  SmallLanguage small;
  Embedder embedder(small.model, *small.executor);
  json::array many;
  for (int i = 0; i < 2048; ++i) many.push_back(json::value(json::string_view(std::string(390, 'a'))));
  const std::string large = json::serialize(json::object{{"input", std::move(many)}});
  for (const bool leaves : {false, true}) {
    INFO(leaves);
    std::optional<EmbeddingWorker> worker(std::in_place, embedder, *small.tokenizer, 0);
    const auto gone = std::make_shared<std::atomic<bool>>(false);
    const auto ask = [&](const std::string& body) {
      ServiceRequest request;
      request.body = body;
      request.gone = gone;
      const auto said = std::make_shared<std::promise<int>>();
      worker->answer(EmbeddingApi::openai, request, "small",
                     [said](const ServiceReply& r) { said->set_value(r.status); });
      return said->get_future();
    };
    const auto answered = [](const std::future<int>& f) {
      return f.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
    std::future<int> first = ask(large), second = ask(R"({"input": "b"})");
    while (answered(second) && !answered(first)) second = ask(R"({"input": "b"})");  // until the first one runs
    REQUIRE_FALSE(answered(first));
    if (leaves) {
      *gone = true;
      std::future<int> third = ask(R"({"input": "c"})");
      CHECK(first.get() == 499);
      CHECK(second.get() == 499);
      CHECK(third.get() == 499);
    } else {
      worker.reset();
      CHECK(first.get() == 503);
      CHECK(second.get() == 503);
    }
  }
}

TEST_CASE("embeddings: a service of vectors alone") {
  SmallLanguage small;
  Embedder embedder(small.model, *small.executor, {}, Pooling::mean);
  EmbeddingWorker worker(embedder, *small.tokenizer, 8);
  EmbeddingService service({}, {"small", "bert", 1, 1, 400, 262, 0}, worker);
  const json::value reply = json::parse(reply_to(service, "POST", "/v1/embeddings", R"({"input": "Hi"})").body);
  CHECK(text_in(reply, "/model") == "small");
  for (const char* path : {"/v1/models", "/v1/models/small", "/api/version", "/healthz", "/openapi.json"})
    CHECK(reply_to(service, "GET", path).status == 200);
  CHECK(reply_to(service, "GET", "/v1/chat/completions").status == 404);
  CHECK(reply_to(service, "GET", "/v1/embeddings").status == 405);
  CHECK(service.known_paths().find("POST /v1/embeddings, /api/embed, /api/embeddings") != std::string::npos);
  embedder.embed(std::vector<int32_t>{5, 6, 7});
  CHECK_THROWS_AS(embedder.embed(std::vector<int32_t>{}), Error);
  CHECK_THROWS_AS(embedder.embed(std::vector<int32_t>(401, 5)), Error);
  CHECK_THROWS_AS(pooling_named("rank"), Error);
}
