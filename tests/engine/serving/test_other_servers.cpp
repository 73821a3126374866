// Fields and routes of vLLM, SGLang and llama.cpp's server.
#include <catch2/catch.hpp>

#include <string>

#include <boost/json.hpp>

#include "tests/engine/serving/served_language.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
namespace json = boost::json;

namespace {

json::value value_at(LanguageOverHttp& served, const char* path, const std::string& body, int status = 200) {
  const ServiceReply reply = reply_to(served.service, body.empty() ? "GET" : "POST", path, body);
  INFO(reply.body);
  REQUIRE(reply.status == status);
  return json::parse(reply.body);
}

struct Text {
  std::string text, reason;
  int64_t tokens = 0;
};

Text completion(LanguageOverHttp& served, const std::string& more) {
  const json::value reply = value_at(served, "/v1/completions", R"({"prompt": "Hi", )" + more + "}");
  const json::value& choice = reply.at_pointer("/choices/0");
  return {std::string(choice.at("text").as_string()), std::string(choice.at("finish_reason").as_string()),
          reply.at_pointer("/usage/completion_tokens").as_int64()};
}

std::string chat_text(LanguageOverHttp& served, const std::string& more) {
  const std::string body = R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 60, )" + more + "}";
  const json::value reply = value_at(served, "/v1/chat/completions", body);
  return std::string(reply.at_pointer("/choices/0/message/content").as_string());
}

std::string error_of(LanguageOverHttp& served, const char* path, const std::string& body) {
  const json::value reply = value_at(served, path, body, 400);
  const json::value& error = reply.at("error");
  return std::string(error.is_string() ? error.as_string() : error.at("message").as_string());
}

const std::string kOnlyA = R"("logit_bias": {"70": 1000}, "max_tokens": 5, )";  // 70: 'A'
const std::string kOnlyEnd = R"("logit_bias": {"2": 1000}, "max_tokens": 5, )";

}  // namespace

TEST_CASE("other servers: stop_token_ids end a text") {
  LanguageOverHttp served;
  CHECK(completion(served, kOnlyA + R"("stop_token_ids": [71])").text == "AAAAA");
  const Text ended = completion(served, kOnlyA + R"("stop_token_ids": [71, 70])");
  CHECK(ended.text.empty());
  CHECK(ended.reason == "stop");
  CHECK(ended.tokens == 1);
  CHECK(error_of(served, "/v1/completions", R"({"prompt": "Hi", "stop_token_ids": [999]})")
            .find("the token 999, which is to end the text, is outside the vocabulary") == 0);
}

TEST_CASE("other servers: logit_bias may be a list") {
  LanguageOverHttp served;
  CHECK(completion(served, R"("logit_bias": [[70, 1000]], "max_tokens": 3)").text == "AAA");
  CHECK(completion(served, R"("logit_bias": [[70, 1000], [71, 2000.5], [71, false]], "max_tokens": 3)").text == "AAA");
  completion(served, R"("logit_bias": [], "max_tokens": 1)");
  for (const char* list : {"[5]", R"([["a", 1]])", "[[5, true]]", "[[5]]"})
    CHECK(error_of(served, "/v1/completions", R"({"prompt": "Hi", "logit_bias": )" + std::string(list) + "}") ==
          "'logit_bias' must be an object of numbers by token, or a list of [token, number]");
}

TEST_CASE("other servers: with ignore_eos only the limit ends a text") {
  LanguageOverHttp served;
  CHECK(completion(served, kOnlyEnd + R"("seed": 1)").tokens == 1);
  const Text all = completion(served, kOnlyEnd + R"("ignore_eos": true)");
  CHECK(all.tokens == 5);
  CHECK(all.reason == "length");
  CHECK(all.text.empty());
  CHECK(completion(served, kOnlyEnd + R"("ignore_eos": true, "skip_special_tokens": false)").text ==
        "</s></s></s></s></s>");
  CHECK(completion(served, kOnlyEnd + R"("ignore_eos": true, "stop_token_ids": [2])").tokens == 1);
}

TEST_CASE("other servers: min_tokens excludes end tokens until then") {
  LanguageOverHttp served;
  for (const char* temperature : {"0", "1"}) {
    const Text text = completion(served, kOnlyEnd + R"("min_tokens": 3, "temperature": )" + std::string(temperature));
    CHECK(text.tokens == 4);
    CHECK(text.reason == "stop");
  }
  CHECK(completion(served, kOnlyEnd + R"("min_tokens": 3, "stop_token_ids": [70])").tokens == 4);
  CHECK(error_of(served, "/v1/completions", R"({"prompt": "Hi", "max_tokens": 2, "min_tokens": 3})") ==
        "'min_tokens' is 3, but the limit of tokens is 2");
}

TEST_CASE("other servers: structured outputs restrict answers") {
  LanguageOverHttp served;
  const std::string schema = R"({"type": "object", "properties": {"a": {"const": 7}}, "required": ["a"],
                                 "additionalProperties": false})";
  const auto is_seven = [](const std::string& text) { return json::parse(text) == json::parse(R"({"a": 7})"); };
  const std::string quoted = json::serialize(json::value(schema));
  const std::string bias = R"(, "logit_bias": {"37": -1000, "14": -1000, "15": -1000, "18": -1000, "261": -1000})";
  for (const std::string& form : {"\"guided_json\": " + schema, "\"guided_json\": " + quoted,
                                  "\"json_schema\": " + schema, R"("structured_outputs": {"json": )" + schema + "}"}) {
    INFO(form);
    CHECK(is_seven(chat_text(served, form + bias)));
  }
  for (const char* form :
       {R"("guided_choice": ["yes", "n\"o\\"])", R"("structured_outputs": {"choice": ["yes", "n\"o\\"]})"}) {
    const std::string text = chat_text(served, form);
    CHECK((text == "yes" || text == "n\"o\\"));
    CHECK(chat_text(served, std::string(form) + R"(, "logit_bias": {"126": -1000})") == "n\"o\\");  // without 'y'
  }
  for (const char* form : {R"("guided_regex": "^[0-9]{3}\"x$")", R"("regex": "\\d{3}\"x")",
                           R"("structured_outputs": {"regex": "\\d{3}\"x"})"}) {
    INFO(form);
    const std::string text = chat_text(served, form);
    CHECK(text.size() == 5);
    CHECK(text.find_first_not_of("0123456789") == 3);
    CHECK(text.ends_with("\"x"));
  }
  for (const char* name : {"guided_grammar", "ebnf", "grammar"})
    CHECK(chat_text(served, "\"" + std::string(name) + R"(": "root ::= \"ab\"")") == "ab");
  const auto refused = [&](const std::string& more) {
    return error_of(served, "/v1/chat/completions",
                    R"({"messages": [{"role": "user", "content": "Hi"}], )" + more + "}");
  };
  CHECK(refused(R"("guided_choice": [])") == "'guided_choice' has no text to choose");
  CHECK(refused(R"x("guided_regex": "(?=a)")x").find("'guided_regex' is not usable: the pattern, character") == 0);
  CHECK(refused(R"("guided_regex": "a", "guided_json": {})").find("exclude each other") != std::string::npos);
  CHECK(refused(R"("structured_outputs": {"structural_tag": "x"})").find("'structural_tag'") == 0);
}

TEST_CASE("other servers: a choice begins behind the reasoning that the prompt opens") {
  LanguageOverHttp served{.format = ChatTemplate("{{ messages[0].content }}<think>\n", "<s>")};
  const std::string body = R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8,
                               "guided_choice": ["yes"], "logit_bias": {"65": -1000}})";  // without '<'
  const json::value reply = value_at(served, "/v1/chat/completions", body);
  CHECK_FALSE(reply.at_pointer("/choices/0/message/reasoning_content").as_string().starts_with("yes"));
}

TEST_CASE("other servers: settings without a counterpart are refused by name") {
  LanguageOverHttp served;
  for (const char* more :
       {R"("bad_words": ["a"])", R"("allowed_token_ids": [5])", R"("use_beam_search": true)",
        R"("truncate_prompt_tokens": 5)", R"("include_stop_str_in_output": true)", R"("return_token_ids": true)",
        R"("xtc_probability": 0.5)", R"("dynatemp_range": 0.5)", R"("n_probs": 3)", R"("top_n_sigma": 1.0)",
        R"("dry_multiplier": 0.8, "dry_penalty_last_n": 64)",
        R"("dry_multiplier": 0.8, "dry_sequence_breakers": ["x"])"}) {
    INFO(more);
    CHECK(error_of(served, "/v1/completions", R"({"prompt": "Hi", )" + std::string(more) + "}")
              .find("is not supported") != std::string::npos);
  }
  for (const char* more : {R"("echo": true)", R"("chat_template": "{{ messages }}")", R"("modalities": ["audio"])",
                           R"("add_special_tokens": true)"}) {
    INFO(more);
    const std::string body = R"({"messages": [{"role": "user", "content": "Hi"}], )" + std::string(more) + "}";
    CHECK(error_of(served, "/v1/chat/completions", body)[0] == '\'');
  }
  // Values that ask for nothing are allowed.
  completion(served, kOnlyA + R"("bad_words": [], "use_beam_search": false, "xtc_probability": 0, "n_probs": 0,
      "dynatemp_range": 0.0, "top_n_sigma": -1, "dry_multiplier": 0, "dry_penalty_last_n": 0,
      "dry_sequence_breakers": ["x"], "cache_prompt": true, "id_slot": -1, "add_special_tokens": true)");
  completion(served, kOnlyA + R"("dry_multiplier": 0.1, "dry_sequence_breakers": ["\n", ":", "\"", "*"])");
}

TEST_CASE("other servers: the last message is continued") {
  LanguageOverHttp served;
  const auto prompt = [&](const char* more) {
    const std::string messages = R"("messages": [{"role": "user", "content": "Hi"},
                                                 {"role": "assistant", "content": " It is "}])";
    return std::string(value_at(served, "/apply-template", "{" + messages + more + "}").at("prompt").as_string());
  };
  CHECK(prompt("").ends_with("<|im_end|>\n<|im_start|>assistant\n"));
  CHECK(prompt(R"(, "add_generation_prompt": false)").ends_with("It is <|im_end|>\n"));
  CHECK(prompt(R"(, "continue_final_message": true, "add_generation_prompt": false)").ends_with("assistant\n It is "));
  CHECK(prompt(R"(, "continue_final_message": true)").ends_with("assistant\n It is "));
  const std::string both = R"({"messages": [{"role": "user", "content": "Hi"}], "continue_final_message": true,
                               "add_generation_prompt": true})";
  CHECK(error_of(served, "/v1/chat/completions", both) ==
        "'continue_final_message' and 'add_generation_prompt' exclude each other");
}

TEST_CASE("other servers: prompts may name special tokens") {
  LanguageOverHttp served;
  const auto tokens = [&](const std::string& more) {
    return value_at(served, "/v1/completions", R"({"max_tokens": 1, "prompt": )" + more + "}")
        .at_pointer("/usage/prompt_tokens")
        .as_int64();
  };
  CHECK(tokens(R"("<|im_start|>")") == 2);  // <s> precedes it
  CHECK(tokens(R"("<|im_start|>", "add_special_tokens": false)") == 1);
  CHECK(tokens(R"("<|im_start|")") > 10);
}

TEST_CASE("other servers: tokens of texts and conversations") {
  LanguageOverHttp served;
  const auto ids = [&](const std::string& body) { return value_at(served, "/tokenize", body).at("tokens"); };
  const json::value own = ids(R"({"prompt": "<|im_start|>A"})");
  REQUIRE(own.as_array().size() >= 3);
  CHECK(own.as_array()[0].as_int64() == 1);
  CHECK(own.as_array()[1].as_int64() == 3);
  CHECK(own.as_array().back().as_int64() == 70);
  const json::value bare = ids(R"({"prompt": "<|im_start|>A", "add_special_tokens": false})");
  CHECK(bare == ids(R"({"content": "<|im_start|>A"})"));
  CHECK(bare.as_array().size() == own.as_array().size() - 1);
  CHECK(ids(R"({"content": "<|im_start|>A", "parse_special": false})").as_array().size() > 10);
  const json::value whole = value_at(served, "/tokenize", R"({"prompt": "A", "return_token_strs": true})");
  CHECK(whole.at("count").as_int64() == static_cast<int64_t>(whole.at("tokens").as_array().size()));
  CHECK(whole.at("max_model_len").as_int64() == 400);
  CHECK(whole.at("token_strs").as_array().back().as_string() == "A");
  const json::value pieces = ids(R"({"content": "\u00e9", "with_pieces": true})");
  CHECK(pieces.as_array().back().at("piece") == json::parse("[169]"));

  const std::string messages = R"("messages": [{"role": "user", "content": "Hi"}])";
  const int64_t used = value_at(served, "/v1/chat/completions", "{" + messages + R"(, "max_tokens": 1})")
                           .at_pointer("/usage/prompt_tokens")
                           .as_int64();
  CHECK(value_at(served, "/tokenize", "{" + messages + "}").at("count").as_int64() == used);

  const json::value text = value_at(served, "/detokenize", R"({"tokens": [3, 70, 200, 174, 4]})");
  CHECK(text.at("prompt").as_string() == "<|im_start|>A\u00e9<|im_end|>");
  CHECK(text.at("content") == text.at("prompt"));
  CHECK(error_of(served, "/detokenize", R"({"tokens": [262]})").find("'tokens' has an item that is not a token") == 0);
  CHECK(error_of(served, "/tokenize", "{}").find("'prompt' is missing") == 0);

  const json::value info = value_at(served, "/tokenizer_info", "");
  CHECK(info.at("bos_token").as_string() == "<s>");
  CHECK(info.at("eos_token").as_string() == "</s>");
  CHECK(info.at("chat_template").as_string().find("im_start") != std::string::npos);
}
