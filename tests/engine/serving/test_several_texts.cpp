// Several texts in one reply, what a request cannot ask for, and requests that only load the model.
#include <catch2/catch.hpp>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "tests/engine/serving/served_language.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
namespace json = boost::json;

namespace {

json::value posted(LanguageOverHttp& served, const char* path, const std::string& body) {
  const ServiceReply reply = reply_to(served.service, "POST", path, body);
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  return json::parse(reply.body);
}

std::string text_at(const json::value& value, const char* pointer) {
  return std::string(value.at_pointer(pointer).as_string());
}

// Returns the texts of a reply's choices, whose indices count from 0.
std::vector<std::string> texts_of(const json::value& reply, const char* pointer) {
  std::vector<std::string> texts;
  for (const json::value& choice : reply.at("choices").as_array()) {
    CHECK(choice.at("index").as_int64() == static_cast<int64_t>(texts.size()));
    texts.push_back(text_at(choice, pointer));
  }
  return texts;
}

// Returns the events of a stream, without "[DONE]", with which it must end.
std::vector<json::value> events_of(const ServiceReply& reply) {
  std::vector<json::value> all;
  size_t at = 0;
  for (size_t end; (end = reply.body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string event = reply.body.substr(at, end - at);
    if (event != "data: [DONE]") all.push_back(json::parse(event.substr(6)));
  }
  CHECK(reply.body.ends_with("data: [DONE]\n\n"));
  CHECK(reply.body.find("[DONE]") == reply.body.rfind("[DONE]"));
  return all;
}

const std::string kMessages = R"("messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6)";

std::string refusal(const char* path, const std::string& body, LanguageOverHttp& served) {
  const ServiceReply reply = reply_to(served.service, "POST", path, body);
  CHECK(reply.status == 400);
  const json::value error = json::parse(reply.body).at("error");
  return std::string(error.is_string() ? error.as_string() : error.at("message").as_string());
}

}  // namespace

TEST_CASE("several texts: n answers have the seeds that follow each other") {
  LanguageOverHttp served;
  const auto body = [](int n, int seed, const char* more = "") {
    return "{" + kMessages + R"(, "temperature": 1.5, "n": )" + std::to_string(n) + R"(, "seed": )" +
           std::to_string(seed) + more + "}";
  };
  const char* const kChat = "/v1/chat/completions";
  const json::value three = posted(served, kChat, body(3, 40));
  const std::vector<std::string> texts = texts_of(three, "/message/content");
  REQUIRE(texts.size() == 3);
  CHECK(std::set<std::string>(texts.begin(), texts.end()).size() == 3);
  int64_t tokens = 0;
  for (int i = 0; i < 3; ++i) {
    INFO(i);
    const json::value one = posted(served, kChat, body(1, 40 + i));
    CHECK(texts_of(one, "/message/content") == std::vector<std::string>{texts[static_cast<size_t>(i)]});
    CHECK(one.at_pointer("/usage/prompt_tokens") == three.at_pointer("/usage/prompt_tokens"));
    tokens += one.at_pointer("/usage/completion_tokens").as_int64();
  }
  CHECK(three.at_pointer("/usage/completion_tokens").as_int64() == tokens);

  const ServiceReply streamed = reply_to(served.service, "POST", kChat,
                                         body(3, 40, R"(, "stream": true, "stream_options": {"include_usage": true})"));
  const std::vector<json::value> events = events_of(streamed);
  REQUIRE_FALSE(events.empty());
  std::map<int64_t, std::string> joined;
  std::map<int64_t, int> ends;
  for (const json::value& event : events)
    for (const json::value& choice : event.at("choices").as_array()) {
      const int64_t index = choice.at("index").as_int64();
      CHECK(ends[index] == 0);
      ends[index] += !choice.at("finish_reason").is_null();
      const auto* content = choice.at("delta").as_object().if_contains("content");
      if (content) joined[index] += std::string(content->as_string());
    }
  CHECK(joined == std::map<int64_t, std::string>{{0, texts[0]}, {1, texts[1]}, {2, texts[2]}});
  CHECK(ends == std::map<int64_t, int>{{0, 1}, {1, 1}, {2, 1}});
  CHECK(events.back().at_pointer("/usage/completion_tokens").as_int64() == tokens);
}

TEST_CASE("several texts: the prompt of n answers is computed once") {
  LanguageOverHttp served;
  const std::string prompt(200, 'x');
  posted(served, "/v1/completions", R"({"max_tokens": 3, "n": 4, "prompt": ")" + prompt + R"("})");
  REQUIRE(served.worker.drain(std::chrono::seconds(60)));  // counters change after replies
  const TextWorker::Report report = served.worker.report();
  CHECK(report.requests == 4);
  CHECK(report.prefix_hits == 3);
  CHECK(report.reused_tokens >= 3 * (200 - PagePool::kRows));
}

TEST_CASE("several texts: each prompt of a list has its texts") {
  LanguageOverHttp served;
  const auto body = [](const std::string& prompt, const char* more) {
    return R"({"max_tokens": 4, "prompt": )" + prompt + more + "}";
  };
  const char* const kPath = "/v1/completions";
  const json::value both = posted(served, kPath, body(R"(["abc", "xyz"])", R"(, "n": 2, "echo": true)"));
  const std::vector<std::string> texts = texts_of(both, "/text");
  REQUIRE(texts.size() == 4);
  std::string alone[2];
  int64_t prompts = 0;
  for (const int i : {0, 1}) {
    const json::value one = posted(served, kPath, body(i ? R"("xyz")" : R"("abc")", ""));
    alone[i] = text_at(one, "/choices/0/text");
    prompts += one.at_pointer("/usage/prompt_tokens").as_int64();
  }
  CHECK(texts == std::vector<std::string>{"abc" + alone[0], "abc" + alone[0], "xyz" + alone[1], "xyz" + alone[1]});
  CHECK(both.at_pointer("/usage/prompt_tokens").as_int64() == prompts);
  const json::value ids = posted(served, kPath, body("[[1, 70, 71], [1, 90]]", ""));
  CHECK(ids.at("choices").as_array().size() == 2);
  CHECK(ids.at_pointer("/usage/prompt_tokens").as_int64() == 5);
  const std::vector<json::value> events =
      events_of(reply_to(served.service, "POST", kPath, body(R"("abc")", R"(, "echo": true, "stream": true)")));
  CHECK(text_at(events.front(), "/choices/0/text").rfind("abc", 0) == 0);
}

TEST_CASE("several texts: an error of one ends the request") {
  LanguageOverHttp served;
  const std::string body = R"({"max_tokens": 300, "prompt": [[70, 71], [262]], "grammar": "root ::= [a-z]{300}")";
  CHECK(refusal("/v1/completions", body + "}", served).find("outside the vocabulary") != std::string::npos);
  const ServiceReply streamed = reply_to(served.service, "POST", "/v1/completions", body + R"(, "stream": true})");
  CHECK(streamed.body.find("outside the vocabulary") != std::string::npos);
  CHECK(streamed.body.find("[DONE]") == std::string::npos);
  CHECK(served.worker.drain(std::chrono::seconds(60)));  // the other texts have ended
}

TEST_CASE("several texts: more than the queue takes are refused at once") {
  LanguageOverHttp served;
  CHECK(refusal("/v1/completions", R"({"prompt": "a", "n": 100})", served) ==
        "the request asks for 100 texts; this server takes 68");
  CHECK(refusal("/v1/completions", R"({"prompt": ["a", "b"], "n": 100})", served) ==
        "'prompt' and 'n' ask for 200 texts; the limit is 128");
}

TEST_CASE("language service: without a seed, each text has its own") {
  LanguageOverHttp served;
  std::set<std::string> texts;
  const std::string body = "{" + kMessages + R"(, "temperature": 1.5})";
  for (int i = 0; i < 3; ++i)
    texts.insert(text_at(posted(served, "/v1/chat/completions", body), "/choices/0/message/content"));
  CHECK(texts.size() == 3);
}

TEST_CASE("language service: what would change an answer and is not supported is refused by name") {
  LanguageOverHttp served;
  const auto chat = [&](const char* more) {
    return refusal("/v1/chat/completions", "{" + kMessages + more + "}", served);
  };
  CHECK(chat(R"(, "functions": [{"name": "f"}])") == "'functions' is not supported: give 'tools' and 'tool_choice'");
  CHECK(chat(R"(, "audio": {"voice": "alloy"})").find("'audio' is not supported") == 0);
  const auto completion = [&](const char* more) {
    return refusal("/v1/completions", std::string(R"({"prompt": "a")") + more + "}", served);
  };
  CHECK(completion(R"(, "suffix": "b")") == "'suffix' is not supported: texts are continued at their end");
  CHECK(completion(R"(, "best_of": 2)").find("'best_of' is more than 'n'") == 0);
  const auto ollama = [&](const char* path, const char* body) { return refusal(path, body, served); };
  CHECK(ollama("/api/chat", R"({"messages": [{"role": "user", "content": "a", "images": ["aa"]}]})") ==
        "'images' is not supported: the model reads text");
  CHECK(ollama("/api/generate", R"({"prompt": "a", "images": ["aa"]})").find("'images'") == 0);
  CHECK(ollama("/api/generate", R"({"prompt": "a", "template": "{{ .Prompt }}"})").find("'template'") == 0);
  CHECK(ollama("/api/generate", R"({"prompt": "a", "context": [1, 2]})").find("'context'") == 0);
  CHECK(chat(R"(, "top_logprobs": 2)") == "'top_logprobs' needs 'logprobs': true");
  const std::string empty = R"("images": [], "context": null, "suffix": "")";
  posted(served, "/api/generate", R"({"prompt": "a", "stream": false, "options": {"num_predict": 1}, )" + empty + "}");
  posted(served, "/v1/chat/completions",
         "{" + kMessages + R"(, "ignore_eos": false, "min_tokens": 0, "guided_json": null, "top_logprobs": 0,
                              "stop_token_ids": [], "structured_outputs": {}})");
}

TEST_CASE("language service: tools that the chat template does not show are refused") {
  LanguageOverHttp served;
  const ChatTemplate plain("{{ messages[0]['content'] }}");
  LanguageService service({}, {"small", "llama", 1, 1, 400, 262, 0}, served.worker, *served.small.tokenizer, plain,
                          LanguageOverHttp::usual(*served.small.tokenizer));
  const std::string tools = R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";
  const ServiceReply refused = reply_to(service, "POST", "/v1/chat/completions", "{" + kMessages + tools + "}");
  CHECK(refused.status == 400);
  CHECK(text_at(json::parse(refused.body), "/error/message").find("'tools' have no place") == 0);
  const std::string none = tools + R"(, "tool_choice": "none"})";
  CHECK(reply_to(service, "POST", "/v1/chat/completions", "{" + kMessages + none).status == 200);
}

TEST_CASE("language service: Ollama's requests without a prompt load the model and write nothing") {
  LanguageOverHttp served;
  for (const auto& [path, body] : std::map<std::string, std::string>{
           {"/api/generate", R"({"model": "m"})"}, {"/api/chat", R"({"model": "m", "messages": []})"}}) {
    INFO(path);
    const json::value reply = posted(served, path.c_str(), body);
    CHECK(reply.at("done").as_bool());
    CHECK(text_at(reply, "/done_reason") == "load");
    CHECK(text_at(reply, "/model") == "m");
    CHECK(text_at(reply, path == "/api/chat" ? "/message/content" : "/response").empty());
  }
  CHECK(text_at(posted(served, "/api/generate", R"({"model": "m", "keep_alive": 0})"), "/done_reason") == "unload");
  CHECK(served.worker.report().requests == 0);
}

TEST_CASE("language service: clients recognise a prompt that is too long, and an unknown model, by the code") {
  LanguageOverHttp served;
  const std::string words = "\"" + std::string(2000, 'a') + "\"";
  const auto code = [&](const ServiceReply& reply) { return text_at(json::parse(reply.body), "/error/code"); };
  const auto long_prompt = [&](const char* path, const std::string& body) {
    return code(reply_to(served.service, "POST", path, body));
  };
  CHECK(long_prompt("/v1/completions", R"({"prompt": )" + words + "}") == "context_length_exceeded");
  CHECK(long_prompt("/v1/chat/completions", R"({"messages": [{"role": "user", "content": )" + words + "}]}") ==
        "context_length_exceeded");
  CHECK(long_prompt("/v1/responses", R"({"input": )" + words + "}") == "context_length_exceeded");
  CHECK(code(reply_to(served.service, "GET", "/v1/models/other")) == "model_not_found");
}

TEST_CASE("language service: Ollama's routes report log probabilities as OpenAI's chat does") {
  LanguageOverHttp served;
  const std::string ask = R"({"messages": [{"role": "user", "content": "Hi"}], "logprobs": true, "top_logprobs": 2, )";
  const json::value openai = posted(served, "/v1/chat/completions", ask + R"("temperature": 0, "max_tokens": 4})");
  const std::string options = R"("options": {"temperature": 0, "num_predict": 4})";
  const json::value whole = posted(served, "/api/chat", ask + options + R"(, "stream": false})");
  CHECK(whole.at("logprobs") == openai.at_pointer("/choices/0/logprobs/content"));
  CHECK(whole.at_pointer("/logprobs/0/top_logprobs").as_array().size() == 2);
  json::array joined;
  std::istringstream lines(reply_to(served.service, "POST", "/api/chat", ask + options + "}").body);
  for (std::string line; std::getline(lines, line);) {
    const json::value sent = json::parse(line);
    if (const json::value* const more = sent.as_object().if_contains("logprobs"))
      joined.insert(joined.end(), more->as_array().begin(), more->as_array().end());
  }
  CHECK(joined == whole.at("logprobs"));
}

TEST_CASE("language service: Ollama's routes describe the model") {
  LanguageOverHttp served;
  const auto shown = [&](const ChatTemplate& format) {
    ServedModel model{"small", "llama", 1, 1, 400, 262, 0};
    model.quantization = "Q4_K_M";
    model.digest = std::string(64, 'a');
    model.sizes["llama.block_count"] = 3;
    LanguageService service({}, model, served.worker, *served.small.tokenizer, format,
                            LanguageOverHttp::usual(*served.small.tokenizer));
    const json::value tags = json::parse(reply_to(service, "GET", "/api/tags").body);
    CHECK(text_at(tags, "/models/0/digest") == std::string(64, 'a'));
    CHECK(text_at(tags, "/models/0/details/quantization_level") == "Q4_K_M");
    const json::value show = json::parse(reply_to(service, "POST", "/api/show", "{}").body);
    CHECK(show.at("model_info").at("llama.block_count").as_int64() == 3);
    CHECK(show.at("model_info").at("llama.context_length").as_int64() == 400);
    return json::serialize(show.at("capabilities"));
  };
  CHECK(shown(ChatTemplate::usual()) == R"(["completion","tools"])");
  CHECK(shown(ChatTemplate("{{ messages[0]['content'] }}")) == R"(["completion"])");
  CHECK(shown(ChatTemplate("{% if tools %}{{ tools | tojson }}{% endif %}<think>")) ==
        R"(["completion","tools","thinking"])");
}

TEST_CASE("text requests: penalties of repetitions and the effort of reasoning") {
  const TextRequest r = read_text_request(
      TextApi::chat,
      "{" + kMessages +
          R"(, "dry_multiplier": 0.8, "dry_base": 2, "dry_allowed_length": 3, "reasoning_effort": "low"})",
      {});
  CHECK(r.settings.filters.dry_multiplier == 0.8);
  CHECK(r.settings.filters.dry_base == 2);
  CHECK(r.settings.filters.dry_length == 3);
  CHECK(r.conversation->more.at("reasoning_effort").as_string() == "low");
  CHECK_FALSE(r.seeded);
  CHECK(dry_breakers({"a", "b\n", "", "\"", "c:"}) == std::vector<int32_t>{1, 3, 4});
}

TEST_CASE("text requests: other clients' ways to write a setting") {
  ContinuationSettings usual;
  usual.tokens = 400;
  const auto read = [&](TextApi api, const std::string& more) {
    return read_text_request(api, "{" + kMessages + ", " + more + "}", usual);
  };
  CHECK(read(TextApi::chat, R"("max_completion_tokens": 9)").settings.tokens == 9);
  CHECK(read(TextApi::chat, R"("max_tokens": -1)").settings.tokens == 400);
  CHECK(read(TextApi::chat, R"("max_completion_tokens": -1, "max_tokens": 7)").settings.tokens == 7);
  CHECK_THROWS(read(TextApi::chat, R"("max_tokens": -2)"));
  CHECK(read(TextApi::chat, R"("top_p": 0)").settings.filters.top_p == 0);
  CHECK(read(TextApi::chat, R"("repetition_penalty": 1.3)").settings.filters.repeat_penalty == 1.3);
  CHECK(read(TextApi::chat, R"("response_format": {"type": "json_object"})").schema == R"({"type":"object"})");
  CHECK(read(TextApi::chat, R"("response_format": {"type": "json_object", "schema": {"type": "null"}})").schema ==
        R"({"type":"null"})");
  CHECK(read(TextApi::ollama_chat, R"("options": {"repeat_last_n": -1})").settings.filters.recent == 400);
  CHECK(read_text_request(TextApi::completion, R"({"prompt": "a", "n_predict": 5})", usual).settings.tokens == 5);
  CHECK(read(TextApi::chat, R"("max_tokens": 2147483647)").settings.tokens == 2147483647);
  CHECK_THROWS(read(TextApi::chat, R"("max_tokens": 2147483648)"));
  for (const char* off : {R"("thinking": {"type": "disabled"})", R"("enable_thinking": false)",
                          R"("reasoning_effort": "none")", R"("chat_template_kwargs": {"enable_thinking": false})"})
    CHECK_FALSE(read(TextApi::chat, off).conversation->more.at("enable_thinking").as_bool());
  CHECK(read(TextApi::chat, R"("thinking": {"type": "enabled"})").conversation->more.at("enable_thinking").as_bool());
  const TextRequest refused = read_text_request(
      TextApi::chat, R"({"messages": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}]})",
      usual);
  CHECK(text_at(refused.conversation->messages[0], "/content").empty());
  const TextRequest talk = read_text_request(
      TextApi::ollama_chat,
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "thinking": "c"},
                       {"role": "tool", "tool_name": "f", "content": "d"}]})",
      usual);
  CHECK(text_at(talk.conversation->messages[1], "/reasoning_content") == "c");
  CHECK(text_at(talk.conversation->messages[2], "/name") == "f");
  const TextRequest thinks = read(TextApi::ollama_chat, R"("think": "high")");
  CHECK(thinks.conversation->more.at("reasoning_effort").as_string() == "high");
  CHECK(thinks.conversation->more.at("enable_thinking").as_bool());
  for (const char* level : {"low", "medium", "max"})
    CHECK(read(TextApi::ollama_chat, std::string(R"("think": ")") + level + '"')
              .conversation->more.at("reasoning_effort")
              .as_string() == level);
  const TextRequest without = read(TextApi::ollama_chat, R"("think": false)");
  CHECK_FALSE(without.conversation->more.at("enable_thinking").as_bool());
  CHECK_FALSE(without.conversation->more.contains("reasoning_effort"));
  CHECK(read(TextApi::ollama_chat, R"("think": "")").conversation->more.empty());
  for (const char* other : {R"("banana")", "3", R"("High")", "{}"})
    CHECK(message_of([&] { read(TextApi::ollama_chat, std::string(R"("think": )") + other); }) ==
          std::string("'think' is ") + (*other == '{' ? "an object" : other) +
              R"(; it must be true, false, "low", "medium", "high" or "max")");
}

TEST_CASE("text worker: a text that waits for another begins when that one is gone") {
  SmallLanguage small;
  TextWorker worker(small.decoder, *small.tokenizer, {});
  const auto job = std::make_shared<TextJob>();
  job->ready = std::make_shared<std::atomic<bool>>(false);
  std::mutex mutex;
  std::condition_variable came;
  bool over = false;
  job->prepare = [] {
    ContinuationSettings settings;
    settings.tokens = 3;
    return TextJob::Prompt{{1, 70}, settings};
  };
  job->tell = [&](const TextJob::News& news) {
    const std::lock_guard lock(mutex);
    over = over || news.over;
    came.notify_all();
  };
  REQUIRE(worker.add(job));
  std::unique_lock lock(mutex);
  CHECK(came.wait_for(lock, std::chrono::seconds(60), [&] { return over; }));
}
