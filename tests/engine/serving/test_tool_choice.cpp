// Answers that must call a tool.
#include <catch2/catch.hpp>

#include <boost/json.hpp>

#include "engine/language/call_grammar.hpp"
#include "engine/language/grammar.hpp"
#include "tests/engine/serving/served_language.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace json = boost::json;

namespace {

const char* const kTools = R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties":
    {"when": {"$ref": "#/$defs/day"}}, "required": ["when"], "$defs": {"day": {"enum": ["now", "later"]}}}}},
  {"type": "function", "function": {"name": "lamp", "parameters": {"type": "object", "properties":
    {"on": {"type": "boolean"}}, "required": ["on"]}}}])";

// ChatML that shows only the names of tools, because the model's context is short.
ChatTemplate short_format() {
  return ChatTemplate(
      "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}{% for message in messages %}"
      "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor "
      "%}<|im_start|>assistant\n",
      "<s>");
}

// Returns whether it is a complete answer.
bool is_call(const std::string& answer, const std::string& name, const std::string& format, bool thinking = false) {
  const std::string grammar = grammar_of_call(json::parse(kTools).as_array(), name, format, thinking);
  GrammarText text(std::make_shared<const Grammar>(grammar));
  return text.append(answer) && text.may_end();
}

// Returns the reply to a chat with both tools. Lines of the answer are unterminated, so that it is short.
ServiceReply chat_reply(LanguageOverHttp& served, const std::string& choice,
                        const char* path = "/v1/chat/completions") {
  const std::string body = R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 120,
      "logit_bias": {"15": -1000}, "tools": )" +
                           std::string(kTools) + R"(, "tool_choice": )" + choice + "}";
  return reply_to(served.service, "POST", path, body);
}

std::string called_name(const ServiceReply& reply) {
  const json::value value = json::parse(reply.body);
  CHECK(value.at_pointer("/choices/0/finish_reason").as_string() == "tool_calls");
  const json::value& call = value.at_pointer("/choices/0/message/tool_calls/0/function");
  CHECK(json::parse(call.at("arguments").as_string()).is_object());
  return std::string(call.at("name").as_string());
}

}  // namespace

TEST_CASE("call grammar: one call of a tool, with arguments of its schema") {
  CHECK(is_call(R"({"name":"lamp","arguments":{"on":true}})", "", ""));
  CHECK(is_call(R"({"name": "weather", "arguments": {"when": "later"}})", "", ""));
  CHECK(is_call(R"({"name":"weather","arguments":{"when":"now"}})", "weather", ""));
  CHECK_FALSE(is_call(R"({"name":"lamp","arguments":{"on":true}})", "weather", ""));
  CHECK_FALSE(is_call(R"({"name":"weather","arguments":{"when":"never"}})", "", ""));
  CHECK_FALSE(is_call(R"({"name":"door","arguments":{}})", "", ""));
  CHECK_FALSE(is_call("The lamp", "", ""));
}

TEST_CASE("call grammar: a tool without parameters has no arguments") {
  for (const char* parameters :
       {"", R"(, "parameters": null)", R"(, "parameters": {"type": "object", "properties": {}})"}) {
    const std::string tools = R"([{"type": "function", "function": {"name": "now")" + std::string(parameters) + "}}]";
    INFO(tools);
    GrammarText none(std::make_shared<const Grammar>(grammar_of_call(json::parse(tools).as_array(), "", "", false)));
    CHECK_FALSE(none.allows(R"({"name":"now","arguments":{"x")"));
    CHECK((none.append(R"({"name":"now","arguments":{}})") && none.may_end()));
  }
}

TEST_CASE("call grammar: marks, reasoning and names are those of the template") {
  const std::string call = R"({"name":"lamp","arguments":{"on":true}})";
  CHECK(is_call("<tool_call>\n" + call + "\n</tool_call>", "", "<tool_call>"));
  CHECK_FALSE(is_call(call, "", "<tool_call>"));
  CHECK(is_call("<think>\nIt is dark < 3 lux.</think>\n" + call, "", "<think>"));
  CHECK(is_call(call, "", "<think>"));
  CHECK(is_call("It is dark.\n</think>\n\n" + call, "", "", true));
  CHECK_FALSE(is_call(call, "", "", true));
  CHECK(is_call(R"({"name":"lamp","parameters":{"on":true}})", "", R"({"name": name, "parameters": values})"));
}

TEST_CASE("call grammar: tools that cannot be called are refused") {
  const auto refused = [](const char* tools, const std::string& name) {
    return message_of([&] { grammar_of_call(json::parse(tools).as_array(), name, "", false); });
  };
  CHECK(refused(kTools, "door") == "'tool_choice' names 'door', which 'tools' lacks");
  CHECK(refused(R"([{"function": {}}])", "").find("'tools' has an item") == 0);
  CHECK(refused(R"([{"function": {"name": "f", "parameters": {"type": "object", "not": {}}}}])", "").find("'not'") !=
        std::string::npos);
}

TEST_CASE("language service: tool_choice asks for a call, for a call of one tool, or for none") {
  LanguageOverHttp served{.format = short_format()};
  const std::string any = called_name(chat_reply(served, R"("required")"));
  CHECK((any == "lamp" || any == "weather"));
  CHECK(called_name(chat_reply(served, R"({"type": "function", "function": {"name": "lamp"}})")) == "lamp");
  CHECK(called_name(chat_reply(served, R"({"type": "function", "name": "weather"})")) == "weather");
  const auto tools = [](const std::string& choice) {
    const std::string body = R"({"messages": [{"role": "user", "content": "Hi"}], "tools": )" + std::string(kTools) +
                             R"(, "tool_choice": )" + choice + "}";
    return read_text_request(TextApi::chat, body, {}).conversation->tools.size();
  };
  CHECK(tools(R"("none")") == 0);
  CHECK(tools(R"("auto")") == 2);
  const std::string lamp = R"("tools": [{"type": "function", "function": {"name": "lamp"}}]})";
  CHECK(tools(R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto", )" + lamp + "}") == 1);
  CHECK(called_name(chat_reply(
            served, R"({"type": "allowed_tools", "allowed_tools": {"mode": "required", )" + lamp + "}")) == "lamp");
  CHECK(called_name(chat_reply(served, R"({"type": "allowed_tools", "mode": "required", )" + lamp)) == "lamp");
}

TEST_CASE("language service: what is wrong with tool_choice is said") {
  LanguageOverHttp served;
  const std::pair<const char*, const char*> cases[] = {
      {R"("always")", "must be none, auto, required or a function"},
      {"3", "must be none, auto, required or a function"},
      {R"({"type": "mcp"})", "must name a function"},
      {R"({"type": "function"})", "names no function"},
      {R"({"type": "function", "name": "door"})", "names 'door', which 'tools' lacks"},
      {R"({"type": "allowed_tools", "mode": "required"})", "allows no tools"},
      {R"({"type": "allowed_tools", "tools": [{"name": "lamp"}], "mode": "always"})", "must be none, auto, required"},
      {R"({"type": "allowed_tools", "tools": [{"name": "door"}]})", "names 'door', which 'tools' lacks"}};
  for (const auto& [choice, message] : cases) {
    INFO(choice);
    const ServiceReply reply = chat_reply(served, choice);
    CHECK(reply.status == 400);
    CHECK(reply.body.find(message) != std::string::npos);
  }
  const ServiceReply none = reply_to(served.service, "POST", "/v1/chat/completions",
                                     R"({"messages": [{"role": "user", "content": "Hi"}], "tool_choice": "required"})");
  CHECK(none.body.find("asks for a call, but 'tools' is empty") != std::string::npos);
}

TEST_CASE("responses: tool_choice asks for a call of a function") {
  LanguageOverHttp served{.format = short_format()};
  const ServiceReply reply = reply_to(served.service, "POST", "/v1/responses",
                                      R"({"input": "Hi", "max_output_tokens": 300, "tool_choice": "required", "tools":
      [{"type": "function", "name": "lamp", "parameters": {"type": "object", "additionalProperties": false}}]})");
  const json::value value = json::parse(reply.body);
  CHECK(value.at_pointer("/output/0/type").as_string() == "function_call");
  CHECK(value.at_pointer("/output/0/name").as_string() == "lamp");
}
