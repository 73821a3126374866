#include "engine/language/call_grammar.hpp"

#include <boost/json.hpp>
#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "engine/language/json_grammar.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

// Rewrites references, which are relative to their schema, for a schema that becomes a part of another one at `place`.
void move_references(json::value& schema, const std::string& place) {
  if (schema.is_array()) {
    for (json::value& one : schema.get_array()) move_references(one, place);
    return;
  }
  if (!schema.is_object()) return;
  for (auto& [key, value] : schema.get_object()) {
    if (key == "$ref" && value.is_string() && value.get_string().starts_with("#"))
      value = json::value("#" + place + std::string(value.get_string().begin() + 1, value.get_string().end()));
    else
      move_references(value, place);
  }
}

const json::object& function_of(const json::value& tool) {
  const json::value* const function = tool.is_object() ? tool.get_object().if_contains("function") : nullptr;
  const json::value* const name =
      function && function->is_object() ? function->get_object().if_contains("name") : nullptr;
  if (!name || !name->is_string())
    throw Error(ErrorKind::Usage, "'tools' has an item that is no {\"function\": {\"name\": ...}}");
  return function->get_object();
}

// A function whose list of parameters is empty has no arguments.
void close_if_empty(json::value& parameters) {
  json::object* const schema = parameters.if_object();
  const json::value* const listed = schema ? schema->if_contains("properties") : nullptr;
  if (listed && listed->is_object() && listed->get_object().empty() && !schema->contains("additionalProperties"))
    (*schema)["additionalProperties"] = false;
}

json::object schema_of_calls(const json::array& tools, const std::string& name, const char* arguments) {
  json::array calls;
  for (const json::value& tool : tools) {
    const json::object& function = function_of(tool);
    const json::value& own = function.at("name");
    if (!name.empty() && own.get_string() != json::string_view(name)) continue;
    const json::value* const given = function.if_contains("parameters");
    json::value parameters = given && !given->is_null()
                                 ? *given
                                 : json::value(json::object{{"type", "object"}, {"properties", json::object()}});
    close_if_empty(parameters);
    move_references(parameters, fmt::format("/anyOf/{}/properties/{}", calls.size(), arguments));
    calls.push_back(json::object{{"type", "object"},
                                 {"properties", {{"name", {{"const", own}}}, {arguments, std::move(parameters)}}},
                                 {"required", {"name", arguments}},
                                 {"additionalProperties", false}});
  }
  if (calls.empty()) throw Error(ErrorKind::Usage, fmt::format("'tool_choice' names '{}', which 'tools' lacks", name));
  return {{"anyOf", std::move(calls)}};
}

bool mentions(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Returns the rule "call": a call, with the marks of the template.
std::string call_rules(const json::array& tools, const std::string& name, std::string_view chat_template) {
  const bool other = !mentions(chat_template, "\"arguments\"") && mentions(chat_template, "\"parameters\"");
  const std::string text = rules_of_schema(schema_of_calls(tools, name, other ? "parameters" : "arguments"), "called");
  return text + "call ::= " +
         (mentions(chat_template, "<tool_call>") ? "\"<tool_call>\" called \"</tool_call>\"\n" : "called\n");
}

constexpr const char* kThoughtRule = "thought ::= ( [^<] | \"<\" [^/] )* \"</think>\" [ \\n]{0,4}\n";

}  // namespace

std::string grammar_of_call(const json::array& tools, const std::string& name, std::string_view chat_template,
                            bool thinking) {
  std::string root = "root ::= ";
  if (thinking)
    root += "thought ";
  else if (mentions(chat_template, "<think>"))
    root += "( \"<think>\" thought )? ";
  return root + "call\n" + kThoughtRule + call_rules(tools, name, chat_template) + json_rules();
}

std::string grammar_of_answer(const std::string& rules, const json::array& tools, std::string_view chat_template,
                              bool thinking) {
  std::string text = "root ::= ";
  if (thinking) text += "thought ";
  text += tools.empty() ? "text\n" : "( text | call )\n";
  if (thinking) text += kThoughtRule;
  if (!tools.empty()) text += call_rules(tools, "", chat_template);
  return text + rules + json_rules();
}

}  // namespace harmonics::engine
