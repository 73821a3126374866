// Log probabilities of prompts, and prompts that are scored without a text.
#include <catch2/catch.hpp>

#include <cmath>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "tests/engine/serving/served_language.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
namespace json = boost::json;

namespace {

constexpr const char* kCompletions = "/v1/completions";

std::vector<int32_t> scored_ids(int64_t length, uint32_t seed) {
  std::vector<int32_t> ids = some_tokens(length, 256, seed);
  for (int32_t& id : ids) id = kFirstByte + id % 200;
  ids[0] = 1;
  return ids;
}

// The scores of a text, computed token by token.
std::vector<std::vector<float>> scores_of(const std::vector<int32_t>& ids) {
  SmallLanguage small;
  Session session(small.decoder);
  std::vector<std::vector<float>> rows;
  for (const int32_t id : ids) {
    const std::span<const float> row = session.append(std::span(&id, 1));
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

json::value completed(LanguageOverHttp& served, const json::object& body) {
  const ServiceReply reply = reply_to(served.service, "POST", kCompletions, json::serialize(body));
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  return json::parse(reply.body);
}

json::object asked(const std::vector<int32_t>& ids, int tokens) {
  return {{"prompt", json::value_from(ids)}, {"max_tokens", tokens}, {"logprobs", 2}, {"echo", true}};
}

// Compares the probabilities of a choice with those of the model. A text of `extra` tokens follows the prompt.
void check_scores(const json::value& choice, const std::vector<int32_t>& ids, size_t extra) {
  const std::vector<std::vector<float>> rows = scores_of(ids);
  const json::array& values = choice.at_pointer("/logprobs/token_logprobs").as_array();
  const json::array& best = choice.at_pointer("/logprobs/top_logprobs").as_array();
  REQUIRE(values.size() == ids.size() + extra);
  REQUIRE(best.size() == values.size());
  CHECK(choice.at_pointer("/logprobs/tokens").as_array().size() == values.size());
  CHECK(choice.at_pointer("/logprobs/text_offset").as_array().size() == values.size());
  CHECK(values[0].is_null());
  CHECK(best[0].is_null());
  for (size_t i = 1; i < ids.size(); ++i) {
    INFO("token " << i);
    CHECK(values[i].as_double() == Approx(log_probability(rows[i - 1], ids[i])).margin(1e-5));
    double most = -INFINITY;
    for (const auto& [token, value] : best[i].as_object()) most = std::max(most, value.as_double());
    CHECK(most == Approx(most_likely(rows[i - 1], 1)[0].log_probability).margin(1e-5));
    CHECK(best[i].as_object().size() <= 3);  // two, and the token itself
  }
}

}  // namespace

TEST_CASE("prompt probabilities: echoed prompts have those of the model") {
  LanguageOverHttp served;
  for (const int64_t length : {1, 2, 33, 200}) {
    const std::vector<int32_t> ids = scored_ids(length, 7);
    for (const int tokens : {0, 1, 3}) {
      INFO(length << " tokens, then " << tokens);
      const json::value reply = completed(served, asked(ids, tokens));
      const json::value& choice = reply.at_pointer("/choices/0");
      const auto more = static_cast<size_t>(reply.at_pointer("/usage/completion_tokens").as_int64());
      CHECK(more <= static_cast<size_t>(tokens));
      CHECK((tokens == 0 || more > 0));
      check_scores(choice, ids, more);
      CHECK(reply.at_pointer("/usage/prompt_tokens").as_int64() == length);
      if (tokens == 0) CHECK(choice.at("finish_reason").as_string() == "length");
    }
  }
}

TEST_CASE("prompt probabilities: a cached prefix does not hide those of its tokens") {
  LanguageOverHttp served;
  const std::vector<int32_t> ids = scored_ids(150, 8);
  completed(served, {{"prompt", json::value_from(ids)}, {"max_tokens", 2}});
  const json::value again = completed(served, {{"prompt", json::value_from(ids)}, {"max_tokens", 2}});
  CHECK(again.at_pointer("/usage/prompt_tokens_details/cached_tokens").as_int64() > 0);
  const json::value scored = completed(served, asked(ids, 1));
  check_scores(scored.at_pointer("/choices/0"), ids, 1);
  CHECK(scored.at_pointer("/usage/prompt_tokens_details/cached_tokens").as_int64() == 0);
}

TEST_CASE("prompt probabilities: an end token has one too") {
  LanguageOverHttp served;
  const std::vector<int32_t> ids = scored_ids(20, 9);
  json::object body = asked(ids, 5);
  body["logit_bias"] = json::object{{"2", 1000}};
  const json::value reply = completed(served, body);
  CHECK(reply.at_pointer("/choices/0/finish_reason").as_string() == "stop");
  check_scores(reply.at_pointer("/choices/0"), ids, 1);
  CHECK(reply.at_pointer("/choices/0/logprobs/tokens/20").as_string() == "</s>");
}

TEST_CASE("prompt probabilities: several prompts and texts at once have those that each has alone") {
  LanguageOverHttp served;
  std::vector<std::vector<int32_t>> prompts;
  for (uint32_t i = 0; i < 9; ++i) prompts.push_back(scored_ids(20 + 37 * (i % 5), 20 + i));
  json::object body = asked({}, 1);
  body["prompt"] = json::value_from(prompts);
  body["n"] = 2;
  const json::value reply = completed(served, body);
  const json::array& choices = reply.at("choices").as_array();
  REQUIRE(choices.size() == 18);
  for (size_t i = 0; i < choices.size(); ++i) {
    INFO("choice " << i);
    check_scores(choices[i], prompts[i / 2], 1);
  }
  REQUIRE(served.worker.drain(std::chrono::seconds(60)));  // counters change after replies
  int64_t tokens = 0;
  for (const auto& prompt : prompts) tokens += static_cast<int64_t>(prompt.size());
  const TextWorker::Report report = served.worker.report();
  CHECK(report.step_tokens < 3 * tokens / 2);  // the second texts take the scores of the first ones
}

TEST_CASE("prompt probabilities: a stream has those of the whole reply") {
  LanguageOverHttp served;
  for (const int tokens : {0, 4}) {
    json::object body = asked(scored_ids(40, 11), tokens);
    const json::value whole = completed(served, body);
    body["stream"] = true;
    const ServiceReply streamed = reply_to(served.service, "POST", kCompletions, json::serialize(body));
    std::map<std::string, json::array> joined;
    std::string text;
    for (size_t at = 0; (at = streamed.body.find("data: {", at)) != std::string::npos; ++at) {
      const json::value event =
          json::parse(streamed.body.substr(at + 6, streamed.body.find("\n\n", at) - at - 6)).at_pointer("/choices/0");
      text += event.at("text").as_string();
      if (!event.at("logprobs").is_object()) continue;
      for (const auto& [name, list] : event.at("logprobs").as_object())
        joined[name].insert(joined[name].end(), list.as_array().begin(), list.as_array().end());
    }
    CHECK(text == whole.at_pointer("/choices/0/text").as_string());
    for (const auto& [name, list] : whole.at_pointer("/choices/0/logprobs").as_object()) {
      INFO(std::string(name));
      CHECK(json::value(joined[std::string(name)]) == list);
    }
  }
}

TEST_CASE("prompt probabilities: offsets are those of the tokens in the echoed text") {
  LanguageOverHttp served;
  const std::string prompt = "d\u00e9j\u00e0 <|im_start|>vu";
  const json::value reply = completed(served, {{"prompt", prompt}, {"max_tokens", 0}, {"logprobs", 0}, {"echo", true}});
  CHECK(reply.at_pointer("/choices/0/text").as_string() == json::string_view(prompt));
  const json::array& tokens = reply.at_pointer("/choices/0/logprobs/tokens").as_array();
  const json::array& offsets = reply.at_pointer("/choices/0/logprobs/text_offset").as_array();
  size_t checked = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string token(tokens[i].as_string());
    if (token == "<s>") CHECK(offsets[i].as_int64() == 0);
    if (token == "j") CHECK(offsets[i].as_int64() == 2);
    if (token == "<|im_start|>") CHECK(offsets[i].as_int64() == 5);
    if (token == "v") CHECK(offsets[i].as_int64() == 17);
    checked += token == "<s>" || token == "j" || token == "<|im_start|>" || token == "v";
  }
  CHECK(checked == 4);
}

TEST_CASE("prompt probabilities: prompt_logprobs lists ids with ranks and texts") {
  LanguageOverHttp served;
  const std::vector<int32_t> ids = scored_ids(30, 12);
  const std::vector<std::vector<float>> rows = scores_of(ids);
  const json::value reply =
      completed(served, {{"prompt", json::value_from(ids)}, {"max_tokens", 1}, {"prompt_logprobs", 1}});
  const json::array& all = reply.at_pointer("/choices/0/prompt_logprobs").as_array();
  CHECK(reply.at_pointer("/choices/0/logprobs").is_null());
  REQUIRE(all.size() == ids.size());
  CHECK(all[0].is_null());
  for (size_t i = 1; i < ids.size(); ++i) {
    const std::vector<float>& row = rows[i - 1];
    const json::object& entry = all[i].at(std::to_string(ids[i])).as_object();
    CHECK(entry.at("logprob").as_double() == Approx(log_probability(row, ids[i])).margin(1e-5));
    const auto better =
        std::ranges::count_if(row, [&](float other) { return other > row[static_cast<size_t>(ids[i])]; });
    CHECK(entry.at("rank").as_int64() == better + 1);
    CHECK(entry.at("decoded_token").is_string());
    const int32_t best = most_likely(row, 1)[0].id;
    CHECK(all[i].at(std::to_string(best)).at("rank").as_int64() == 1);
    CHECK(all[i].as_object().size() == (best == ids[i] ? 1 : 2));
  }
  const std::string chat = R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "prompt_logprobs": 0)";
  const ServiceReply answered = reply_to(served.service, "POST", "/v1/chat/completions", chat + "}");
  REQUIRE(answered.status == 200);
  const json::value said = json::parse(answered.body);
  CHECK(static_cast<int64_t>(said.at("prompt_logprobs").as_array().size()) ==
        said.at_pointer("/usage/prompt_tokens").as_int64());
  const ServiceReply refused = reply_to(served.service, "POST", "/v1/chat/completions", chat + R"(, "stream": true})");
  CHECK(refused.status == 400);
  CHECK(refused.body.find("'prompt_logprobs' has no place in a stream") != std::string::npos);
}

TEST_CASE("prompt probabilities: more than a reply should hold are refused") {
  LanguageOverHttp served;
  TextWorker worker(served.small.decoder, *served.small.tokenizer, {.queue = 128});
  LanguageService service({}, {"small", "llama", 1, 1, 400, 262, 0}, worker, *served.small.tokenizer, served.format,
                          LanguageOverHttp::usual(*served.small.tokenizer));
  json::object body = asked(scored_ids(398, 13), 1);
  body["logprobs"] = 20;
  body["n"] = 128;
  const ServiceReply reply = reply_to(service, "POST", kCompletions, json::serialize(body));
  CHECK(reply.status == 400);
  CHECK(reply.body.find("the limit is 1048576; send fewer prompts") != std::string::npos);
}

TEST_CASE("prompt probabilities: texts that lose their pages meanwhile keep those of their prompts") {
  SmallLanguage small;
  std::map<int, std::shared_ptr<const PromptScores>> scored;
  std::mutex mutex;
  {
    TextWorker worker(small.decoder, *small.tokenizer, {.sequences = 5, .queue = 16, .cached_tokens = 432});
    std::promise<void> all_wait;
    std::shared_future<void> started = all_wait.get_future().share();
    for (int i = 0; i < 9; ++i) {
      auto job = std::make_shared<TextJob>();
      ContinuationSettings settings;
      settings.temperature = 0;
      settings.tokens = 150;
      settings.usual_ends = false;
      settings.prompt_probabilities = 1;
      const std::vector<int32_t> ids = scored_ids(80 + 20 * (i % 4), static_cast<uint32_t>(i));
      job->prepare = [started, ids, settings] {
        started.wait();
        return TextJob::Prompt{ids, settings};
      };
      job->tell = [&, i](const TextJob::News& news) {
        const std::lock_guard lock(mutex);
        if (news.over && news.done) scored[i] = news.done->prompt;
      };
      REQUIRE(worker.add(job));
    }
    all_wait.set_value();
    REQUIRE(worker.drain(std::chrono::seconds(100)));
    CHECK(worker.report().preempted > 0);
    CHECK(worker.report().failed == 0);
  }
  REQUIRE(scored.size() == 9);
  for (const auto& [number, prompt] : scored) {
    const std::vector<int32_t> ids = scored_ids(80 + 20 * (number % 4), static_cast<uint32_t>(number));
    const std::vector<std::vector<float>> rows = scores_of(ids);
    REQUIRE(prompt);
    REQUIRE(prompt->others.size() == ids.size() - 1);
    for (size_t i = 1; i < ids.size(); ++i) {
      CHECK(prompt->others[i - 1].id == ids[i]);
      CHECK(prompt->others[i - 1].log_probability == Approx(log_probability(rows[i - 1], ids[i])).margin(1e-5));
    }
  }
}
