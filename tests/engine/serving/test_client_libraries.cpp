// What libraries of clients rely on: formats beside tools, log probabilities of a stream, and the form of errors.
#include <catch2/catch.hpp>

#include <string>

#include <boost/json.hpp>

#include "engine/language/call_grammar.hpp"
#include "engine/language/grammar.hpp"
#include "engine/language/json_grammar.hpp"
#include "engine/serving/embedding_service.hpp"
#include "tests/engine/serving/served_language.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
namespace json = boost::json;

namespace {

std::string string_in(const json::value& value, const char* pointer) {
  return std::string(value.at_pointer(pointer).as_string());
}

json::value value_of(LanguageOverHttp& served, const char* path, const std::string& body, int status = 200) {
  const ServiceReply reply = reply_to(served.service, "POST", path, body);
  INFO(reply.body);
  REQUIRE(reply.status == status);
  return json::parse(reply.body);
}

const char* const kLamp = R"([{"type": "function", "function": {"name": "lamp", "parameters":
    {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}}}])";
const char* const kNamed = R"({"type": "object", "properties": {"name": {"$ref": "#/$defs/n"}},
    "required": ["name"], "additionalProperties": false, "$defs": {"n": {"enum": ["Ada", "Bob"]}}})";

// Shows the names of tools only, because the model's context is short.
ChatTemplate short_template(const std::string& end) {
  return ChatTemplate(
      "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
      "{% for message in messages %}{{ message.content }}{% endfor %}" +
          end,
      "<s>");
}

bool is_answer(const std::string& answer, const char* tools, const std::string& format, bool thinking = false) {
  GrammarText text(std::make_shared<const Grammar>(grammar_of_answer(rules_of_schema(json::parse(kNamed), "text"),
                                                                     json::parse(tools).as_array(), format, thinking)));
  return text.append(answer) && text.may_end();
}

// Returns the logprobs of all events of a stream.
json::array streamed_probabilities(const std::string& body, const char* list) {
  json::array all;
  for (size_t at = 0; (at = body.find("data: {", at)) != std::string::npos; ++at) {
    const json::value event = json::parse(body.substr(at + 6, body.find("\n\n", at) - at - 6));
    const json::value& some = event.at_pointer("/choices/0/logprobs");
    if (some.is_object()) all.insert(all.end(), some.at(list).as_array().begin(), some.at(list).as_array().end());
  }
  return all;
}

}  // namespace

TEST_CASE("answer grammar: a text of the schema, or a call of a tool") {
  const std::string call = R"({"name":"lamp","arguments":{"on":true}})", marked = "<tool_call>" + call + "</tool_call>";
  CHECK(is_answer(R"({"name": "Ada"})", "[]", ""));
  CHECK_FALSE(is_answer(call, "[]", ""));
  CHECK(is_answer(R"({"name": "Ada"})", kLamp, ""));
  CHECK(is_answer(call, kLamp, ""));
  CHECK(is_answer(R"({"name": "Bob"})", kLamp, "<tool_call>"));
  CHECK(is_answer(marked, kLamp, "<tool_call>"));
  CHECK_FALSE(is_answer(call, kLamp, "<tool_call>"));
  CHECK_FALSE(is_answer(R"({"name": "lamp"})", kLamp, ""));
  CHECK(is_answer("Hm.</think>\n{\"name\": \"Ada\"}", "[]", "<think>", true));
  CHECK(is_answer("Hm.</think>" + marked, kLamp, "<think><tool_call>", true));
  CHECK_FALSE(is_answer(R"({"name": "Ada"})", "[]", "<think>", true));
}

TEST_CASE("language service: a required call ignores the format of texts") {
  LanguageOverHttp served{.format = short_template("\n")};
  const std::string format = R"({"type": "json_schema", "name": "x", "schema": )" + std::string(kNamed) + "}";
  const json::value reply = value_of(served, "/v1/responses",
                                     R"({"input": "Hi", "max_output_tokens": 200, "logit_bias": {"15": -1000},
      "tools": [{"type": "function", "name": "lamp", "parameters": {"type": "object", "properties": {}}}],
      "tool_choice": {"type": "function", "name": "lamp"}, "text": {"format": )" +
                                         format + "}}");
  CHECK(string_in(reply, "/output/0/type") == "function_call");
  const std::string grammar =
      R"({"messages": [{"role": "user", "content": "Hi"}], "tool_choice": "required", "tools": )" + std::string(kLamp) +
      R"(, "grammar": "root ::= \"a\""})";
  CHECK(string_in(value_of(served, "/v1/chat/completions", grammar, 400), "/error/message")
            .find("the grammar excludes") != std::string::npos);
}

TEST_CASE("language service: an object that names no tool is the answer") {
  LanguageOverHttp served{.format = short_template("\n")};
  const std::string body = R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100, "tools": )" +
                           std::string(kLamp) + R"(, "grammar": "root ::= \"{\\\"name\\\": \\\"Ada\\\"}\""})";
  const json::value reply = value_of(served, "/v1/chat/completions", body);
  CHECK(string_in(reply, "/choices/0/message/content") == R"({"name": "Ada"})");
  CHECK(string_in(reply, "/choices/0/finish_reason") == "stop");
}

TEST_CASE("language service: at most one call without parallel_tool_calls") {
  LanguageOverHttp served{.format = short_template("\n")};
  const std::string call = R"(<tool_call>{\\\"name\\\":\\\"lamp\\\"}</tool_call>)";
  const auto calls = [&](const char* more) {
    const std::string body = R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 200, "tools": )" +
                             std::string(kLamp) + R"(, "grammar": "root ::= \")" + call + call + R"(\"")" + more + "}";
    return value_of(served, "/v1/chat/completions", body).at_pointer("/choices/0/message/tool_calls").as_array().size();
  };
  CHECK(calls("") == 2);
  CHECK(calls(R"(, "parallel_tool_calls": false)") == 1);
}

TEST_CASE("language service: a format begins behind the reasoning that the prompt opens") {
  LanguageOverHttp served{.format = short_template("<think>\n")};
  // Without '{' and white space there is no JSON object.
  const json::value reply = value_of(served, "/v1/chat/completions",
                                     R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8,
      "response_format": {"type": "json_object"},
      "logit_bias": {"128": -1000, "37": -1000, "15": -1000, "261": -1000}})");
  CHECK(string_in(reply, "/choices/0/message/reasoning_content").find('{') == std::string::npos);
}

TEST_CASE("language service: tools that are no functions are refused") {
  LanguageOverHttp served;
  const auto refusal = [&](const std::string& tools) {
    const std::string body = R"({"messages": [{"role": "user", "content": "Hi"}], "tools": [)" + tools + "]}";
    return string_in(value_of(served, "/v1/chat/completions", body, 400), "/error/message");
  };
  CHECK(refusal(R"({"type": "web_search"})") ==
        "'tools' has a tool of the type 'web_search': only functions are supported");
  CHECK(refusal("{}") == "'tools' has a function without a name");
  CHECK(refusal("3") == "'tools' has an item that is not an object");
}

TEST_CASE("language service: log probabilities are those of the returned text, also in a stream") {
  LanguageOverHttp served;
  const auto same = [&](const char* path, const std::string& body, const char* list) {
    const json::value whole = value_of(served, path, "{" + body + "}");
    const ServiceReply stream = reply_to(served.service, "POST", path, "{" + body + R"(, "stream": true})");
    const json::array& tokens = whole.at_pointer("/choices/0/logprobs").at(list).as_array();
    CHECK(streamed_probabilities(stream.body, list) == tokens);
    return tokens.size();
  };
  const std::string abc = R"("prompt": "x", "max_tokens": 50, "logprobs": 1, "grammar": "root ::= \"abcdefgh\"")";
  CHECK(same("/v1/completions", abc, "tokens") == 8);
  CHECK(same("/v1/completions", abc + R"(, "stop": "defz")", "tokens") == 8);
  CHECK(same("/v1/completions", abc + R"(, "stop": ["defz", "efg"])", "tokens") == 4);
  CHECK(same("/v1/completions", R"("prompt": "x", "max_tokens": 5, "logprobs": 1, "logit_bias": {"2": 1000})",
             "tokens") == 0);  // </s>
  const std::string chat = R"("messages": [{"role": "user", "content": "Hi"}], "max_tokens": 50, "logprobs": true)";
  CHECK(same("/v1/chat/completions", chat + R"(, "stop": "ef", "grammar": "root ::= \"abcdefgh\"")", "content") == 4);
  CHECK(same("/v1/chat/completions", chat + R"(, "tools": [], "grammar": "root ::= \"<think>a</think>\"")",
             "content") == 16);
}

TEST_CASE("language service: errors of OpenAI's paths have the form of its API") {
  LanguageOverHttp served;
  const auto error = [&](const char* method, const char* path, const char* body, int status) {
    const ServiceReply reply = reply_to(served.service, method, path, body);
    CHECK(reply.status == status);
    const json::value value = json::parse(reply.body).at("error");
    CHECK(value.at("message").is_string());
    CHECK(string_in(value, "/type") == "invalid_request_error");
    return value.at("param");
  };
  CHECK(error("POST", "/v1/nothing", "", 404).is_null());
  CHECK(error("GET", "/v1/completions", "", 405).is_null());
  CHECK(error("POST", "/v1/completions", R"({"prompt": "a", "temperature": -1})", 400) == "temperature");
  CHECK(error("POST", "/v1/chat/completions", R"({"messages": []})", 400) == "messages");
  CHECK(error("POST", "/v1/responses", R"({"input": "a", "background": true})", 400) == "background");
  CHECK(error("POST", "/v1/completions", "{", 400).is_null());
  CHECK(json::parse(reply_to(served.service, "POST", "/api/nothing").body).at("error").is_string());
}

TEST_CASE("language service: only the last object of a stream has its usage") {
  LanguageOverHttp served;
  const std::string body = R"({"prompt": "a", "max_tokens": 2, "stream": true, "stream_options": {"include_usage": )";
  const std::string with = reply_to(served.service, "POST", "/v1/completions", body + "true}}").body;
  CHECK(with.find(R"("usage":null)") < with.find(R"("usage":{)"));
  CHECK(reply_to(served.service, "POST", "/v1/completions", body + "false}}").body.find("usage") == std::string::npos);
}

TEST_CASE("language service: Ollama's generated text has its reasoning beside it") {
  LanguageOverHttp served;
  const json::value reply = value_of(served, "/api/generate", R"({"prompt": "Hi", "stream": false, "format":
      {"type": "object", "properties": {"a": {"const": "<think>b</think>"}}, "required": ["a"]},
      "options": {"temperature": 0, "num_predict": 60}})");
  CHECK(string_in(reply, "/thinking") == "b");
  CHECK(string_in(reply, "/response").find("<think>") == std::string::npos);
}

TEST_CASE("embeddings: Ollama's requests without a text have no vectors") {
  const auto request = [](EmbeddingApi api, const char* body) {
    return read_embedding_request(api, body).inputs.size();
  };
  CHECK(request(EmbeddingApi::ollama, R"({"input": ""})") == 0);
  CHECK(request(EmbeddingApi::ollama, R"({"input": []})") == 0);
  CHECK(request(EmbeddingApi::ollama_one, R"({"prompt": ""})") == 0);
  CHECK_THROWS(request(EmbeddingApi::ollama, "{}"));
  CHECK_THROWS(request(EmbeddingApi::openai, R"({"input": []})"));
}
