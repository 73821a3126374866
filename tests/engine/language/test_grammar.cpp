// Grammars and JSON schemas: accepted texts, and errors.
#include <catch2/catch.hpp>

#include <boost/json.hpp>
#include <harmonics/error.hpp>

#include "engine/language/grammar.hpp"
#include "engine/language/json_grammar.hpp"
#include "engine/language/sampler.hpp"
#include "engine/language/token_constraint.hpp"
#include "tests/message_of.hpp"

using namespace harmonics::engine;

namespace {

// Returns 'x': rejected; '.': a valid prefix; '!': complete.
char judged(const std::string& grammar, const std::string& text) {
  GrammarText follows(std::make_shared<const Grammar>(grammar));
  if (!follows.append(text)) return 'x';
  return follows.may_end() ? '!' : '.';
}

char judged_json(const std::string& schema, const std::string& text) {
  return judged(grammar_of_schema(boost::json::parse(schema)), text);
}

std::string refusal(const std::string& grammar) {
  return harmonics::message_of([&] { Grammar{grammar}; });
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("grammar: texts, sets, groups and repetitions") {
  CHECK(judged("root ::= \"ab\"", "a") == '.');
  CHECK(judged("root ::= \"ab\"", "ab") == '!');
  CHECK(judged("root ::= \"ab\"", "abc") == 'x');
  CHECK(judged("root ::= [a-c]+ \"-\"?", "abcb-") == '!');
  CHECK(judged("root ::= [a-c]+", "") == '.');
  CHECK(judged("root ::= [^a-c]*", "xyz") == '!');
  CHECK(judged("root ::= [^a-c]*", "xa") == 'x');
  CHECK(judged("root ::= (\"a\" | \"b\" other)* # comment\nother ::= \"c\" |\n \"d\"", "abcabd") == '!');
  CHECK(judged("root ::= [0-9]{2,4}", "1") == '.');
  CHECK(judged("root ::= [0-9]{2,4}", "1234") == '!');
  CHECK(judged("root ::= [0-9]{2,4}", "12345") == 'x');
  CHECK(judged("root ::= \"x\"{3}", "xxx") == '!');
  CHECK(judged("root ::= \"x\"{2,} \"y\"", "xxxxxy") == '!');
  CHECK(judged("root ::= \"\\x41\\u00e9\\n\\\"\"", "A\xC3\xA9\n\"") == '!');
  CHECK(judged("root ::= (\"a\"?)* \"b\"", "aab") == '!');
}

TEST_CASE("grammar: characters are compared byte by byte") {
  CHECK(judged("root ::= [à-ü]", "\xC3") == '.');
  CHECK(judged("root ::= [à-ü]", "\xC3\xA9") == '!');
  CHECK(judged("root ::= [à-ü]", "\xC3\xBE") == 'x');
  CHECK(judged("root ::= .", "\xF0\x9F\x99\x82") == '!');
  CHECK(judged("root ::= .", "\xED\xA0") == 'x');  // a surrogate
  CHECK(judged("root ::= .", "\xC0\x80") == 'x');  // overlong
  CHECK(judged("root ::= [^x]", "\xE4\xBD\xA0") == '!');
  CHECK(judged("root ::= [\\U00010000-\\U0010FFFF]", "\xF4\x8F\xBF\xBF") == '!');
}

TEST_CASE("grammar: what is wrong is said with its place") {
  CHECK(refusal("root ::= a\nb ::= \"x\"") ==
        "the grammar, line 1, column 10: there is no rule 'a'; write a ::= ..., or \"a\" for the text");
  CHECK(refusal("a ::= \"x\"") == "the grammar, line 1, column 1: there is no rule 'root'");
  CHECK(refusal("root ::= \"x") == "the grammar, line 1, column 10: the text has no closing quote");
  CHECK(refusal("root ::= [x") == "the grammar, line 1, column 10: the set has no ']'");
  CHECK(refusal("root ::= (\"x\"") == "the grammar, line 1, column 10: the group has no ')'");
  CHECK(refusal("root = \"x\"") == "the grammar, line 1, column 6: expected '::='");
  CHECK(refusal("root ::= \"x\"\nroot ::= \"y\"") == "the grammar, line 2, column 1: the rule 'root' is defined twice");
  CHECK(refusal("root ::= root \"x\" | \"y\"").find("a rule begins with itself") != std::string::npos);
  CHECK(refusal("root ::= a\na ::= \"\" b\nb ::= a \"x\"").find("a rule begins with itself") != std::string::npos);
  CHECK(refusal("root ::= \"x\"{9999}").find("more than 2000 repetitions") != std::string::npos);
  CHECK(refusal("root ::= " + repeated("(", 300)).find("nested more than 100 deep") != std::string::npos);
  CHECK(refusal("root ::= ((((\"x\"{2000}){2000}){2000}){2000}){2000}") == "no error");  // repetitions share rules
  CHECK(refusal("root ::= " + repeated("[a-z]{2000} ", 600)).find("symbols") != std::string::npos);
}

TEST_CASE("grammar: right recursion takes no memory, and nesting is bounded") {
  CHECK(judged("root ::= \"a\" root | \"a\"", repeated("a", 20000)) == '!');
  CHECK(judged("root ::= \"(\" root \")\" | \"x\"", repeated("(", 400) + "x" + repeated(")", 400)) == '!');
  CHECK(judged("root ::= \"(\" root \")\" | \"x\"", repeated("(", 2000)) == 'x');
}

TEST_CASE("json schema: values that fit are complete, others are refused") {
  CHECK(judged_json(R"({"type": "object"})", R"({"a": [1, -2.5e3, true, null, "x\n\u0041"], "b": {}})") == '!');
  CHECK(judged_json(R"({"type": "object"})", "[1]") == 'x');
  CHECK(judged_json(R"({"enum": [2.5, {"a": 0.01}]})", "2.5") == '!');
  CHECK(judged_json(R"({"const": {"a": 0.01}})", R"({"a":0.01})") == '!');
  const std::string person = R"({"type": "object", "properties": {"name": {"type": "string"},
      "age": {"type": "integer", "minimum": 0}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}}},
      "required": ["name", "age"], "additionalProperties": false})";
  CHECK(judged_json(person, R"({"name": "Ann", "age": 3})") == '!');
  CHECK(judged_json(person, R"({"name":"Ann","age":3,"tags":["a","b","a"]})") == '!');
  CHECK(judged_json(person, R"({"name": "Ann", "age": 3,)") == '.');
  CHECK(judged_json(person, R"({"age": 3)") == 'x');
  CHECK(judged_json(person, R"({"name": "Ann", "age": -3)") == 'x');
  CHECK(judged_json(person, R"({"name": "Ann"})") == 'x');
  CHECK(judged_json(person, R"({"name": "Ann", "age": 3, "tags": ["c")") == 'x');
  CHECK(judged_json(R"({"anyOf": [{"type": "null"}, {"const": {"a": 1}}]})", R"({"a":1})") == '!');
  CHECK(judged_json(R"({"type": ["integer", "boolean"]})", "true") == '!');
  CHECK(judged_json(R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})", "[1]") == 'x');
  CHECK(judged_json(R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})", "[1, 2, 3]") ==
        '!');
  CHECK(judged_json(R"({"type": "array", "items": {"type": "integer"}, "maxItems": 1})", "[]") == '!');
  CHECK(judged_json(R"({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false})", R"([1, "x"])") ==
        '!');
  CHECK(judged_json(R"({"type": "string", "minLength": 2, "maxLength": 3})", R"("é")") == 'x');
  CHECK(judged_json(R"({"type": "string", "minLength": 2, "maxLength": 3})", R"("é🙂")") == '!');
  CHECK(judged_json(R"({"type": "string", "format": "date"})", R"("2026-02-29")") == '!');
  CHECK(judged_json(R"({"type": "string", "format": "date"})", R"("2026-13)") == 'x');
  CHECK(judged_json(R"({"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}})",
                    R"({"x": 1, "y": 2})") == '!');
  const std::string tree =
      R"({"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"next": {"$ref": "#/$defs/t"}}}}})";
  CHECK(judged_json(tree, R"({"next": {"next": {}}})") == '!');
  CHECK(judged_json("{}", "[1, {\"a\": null}]") == '!');
}

TEST_CASE("json schema: annotations do not restrict values") {
  for (const char* note : {R"("title": "t")", R"("example": 3)", R"("x-order": 1)", R"("$anchor": "a")", R"("xml": {})",
                           R"("contentMediaType": "text/html")", R"("markdownDescription": "m")",
                           R"("propertyOrdering": ["a"])", R"("externalDocs": {"url": "u"})"}) {
    const std::string schema = R"({"type": "integer", )" + std::string(note) + "}";
    INFO(schema);
    CHECK(judged_json(schema, "7") == '!');
    CHECK(judged_json(schema, "true") == 'x');
  }
  const std::string map = R"({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {}})";
  CHECK(judged_json(map, R"({"any": 1})") == '!');
  CHECK(judged_json(R"({"type": "integer", "nullable": true})", "null") == '!');
  CHECK(judged_json(R"({"type": "integer", "nullable": false})", "null") == 'x');
}

TEST_CASE("json schema: what is not supported is named with its place") {
  const auto message = [](const std::string& schema) {
    return harmonics::message_of([&] { grammar_of_schema(boost::json::parse(schema)); });
  };
  CHECK(message(R"({"type": "object", "properties": {"a": {"type": "string", "contains": 3}}})") ==
        "the JSON schema, #/properties/a: the keyword 'contains' is not supported");
  CHECK(message(R"({"type": "text"})") ==
        "the JSON schema, #/type: 'text' is not a JSON type\n"
        "types: array, boolean, integer, null, number, object, string");
  CHECK(message(R"({"$ref": "#/$defs/x"})") == "the JSON schema, #/$ref: there is no '#/$defs/x'");
  CHECK(message(R"({"type": "integer", "minimum": 1e18})") ==
        "the JSON schema, #/minimum: it is a number of at most 1000000000000000 in magnitude");
  CHECK(message(R"({"type": "integer", "minimum": 0.2, "maximum": 0.8})") ==
        "the JSON schema, #: no number is within its bounds");
  CHECK(message(R"x({"type": "string", "pattern": "a(?=b)"})x") ==
        "the JSON schema, #/pattern: the pattern, character 4: of groups that begin with '?', only (?:...) and "
        "(?<name>...) are supported");
  CHECK(message(R"({"type": "object", "propertyNames": {"pattern": "^a"}})") ==
        "the JSON schema, #: the keyword 'propertyNames' is not supported");
  CHECK(message(R"({"type": "string", "format": "regex"})") ==
        "the JSON schema, #/format: 'regex' is not supported\n"
        "formats: date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6, uri");
  CHECK(message("3") == "the JSON schema, #: a schema is an object or true");
}

TEST_CASE("constraint: only tokens that the grammar allows are chosen") {
  const auto pieces =
      std::make_shared<const std::vector<std::string>>(std::vector<std::string>{"a", "b", "ab", "", "ba", "<end>"});
  const auto grammar = std::make_shared<const Grammar>("root ::= \"ab\" \"b\"?");
  TokenConstraint constraint(grammar, pieces, {5});
  const auto allowed = [&] {
    std::string ids;
    for (int32_t id = 0; id < 6; ++id)
      if (constraint.allows(id)) ids += std::to_string(id);
    return ids;
  };
  CHECK(allowed() == "02");
  constraint.accept(2);
  CHECK(allowed() == "15");
  const std::vector<float> scores = {9, 1, 8, 7, 6, 0};
  Sampler greedy({0, 1}, {}, 6);
  CHECK(greedy.choose(scores, &constraint) == 1);
  Sampler drawing({1, 1}, {.top_k = 3}, 6);
  bool both[2] = {false, false};
  for (int i = 0; i < 200; ++i) {
    const int32_t id = drawing.choose(scores, &constraint);
    REQUIRE((id == 1 || id == 5));
    both[id == 5] = true;
  }
  CHECK((both[0] && both[1]));
  constraint.accept(1);
  CHECK(constraint.is_over());
  CHECK(constraint.may_end());
  TokenConstraint none(std::make_shared<const Grammar>("root ::= \"z\""), pieces, {5});
  CHECK(harmonics::message_of([&] { greedy.choose(scores, &none); }).find("no token of the model") == 0);
}
