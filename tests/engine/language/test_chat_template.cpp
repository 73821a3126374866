// Chat templates: positions of errors, and limits of what a template may do.
#include <catch2/catch.hpp>

#include <boost/json.hpp>
#include <harmonics/error.hpp>

#include "engine/language/chat_template.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

std::string text_of_template(const std::string& text, const boost::json::object& variables = {}) {
  ChatPrompt prompt;
  prompt.more = variables;
  return ChatTemplate(text, "<s>", "</s>").render(prompt);
}

// Returns the error message without "the chat template, ".
std::string refusal_of(const std::string& text) {
  const std::string message = message_of([&] { text_of_template(text); });
  const std::string begin = "the chat template, ";
  return message.rfind(begin, 0) == 0 ? message.substr(begin.size()) : message;
}

std::string times(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("chat template: errors name line and column") {
  CHECK(refusal_of("a\n{{ b.c }}") == "line 2, column 5: 'b' is undefined");
  CHECK(refusal_of("\n\n  {% if x %}") == "line 3, column 6: 'if' has no 'endif'");
  CHECK(refusal_of("{{ 1 + }}") == "line 1, column 8: expected a value, found '}}'");
  CHECK(refusal_of("{% if true %}{% endfor %}") == "line 1, column 17: expected 'endif', found 'endfor'");
  CHECK(refusal_of("{{ 'a' | nothing }}") == "line 1, column 10: there is no filter 'nothing'");
  CHECK(refusal_of("{{ raise_exception('roles ' ~ 'alternate') }}") == "line 1, column 19: roles alternate");
  CHECK(refusal_of("{% break %}") == "line 1, column 4: 'break' is in no loop");
  CHECK(refusal_of("{{ 9223372036854775807 + 1 }}") == "line 1, column 24: a whole number overflows 64 bits");
  CHECK(refusal_of("{{ 9223372036854775808 }}") == "line 1, column 4: the number is too large");
}

TEST_CASE("chat template: it reads no files and changes nothing that it is given") {
  for (const char* word : {"include 'x'", "import 'x' as y", "from 'x' import y", "extends 'x'"})
    CHECK(refusal_of(std::string("{% ") + word + " %}").find("reads other files, which templates may not do") !=
          std::string::npos);
  CHECK(refusal_of("{{ [1].append(2) }}").find("'append' would change a list, which templates may not do") !=
        std::string::npos);
  CHECK(refusal_of("{{ {'a': 1}.pop('a') }}").find("would change a map") != std::string::npos);
  CHECK(refusal_of("{{ ''.__class__.__mro__ }}").find("'__class__' is undefined") != std::string::npos);
  CHECK(refusal_of("{{ open('x') }}").find("'open' is undefined") != std::string::npos);
}

TEST_CASE("chat template: bombs end with an error") {
  for (const std::string& bomb : {
           std::string("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}"),
           std::string("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}"),
           std::string("{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n }}{% endmacro %}{{ f(40) }}"),
           std::string("{{ 'aaaaaaaaaaaaaaaa' * 1000000000000 }}"),
           std::string(
               "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}"),
           std::string(
               "{% set n = namespace(s=[1]) %}{% for i in range(90) %}{% set n.s = [n.s] %}{% endfor %}{{ n.s }}"),
           std::string(
               "{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}"),
           std::string("{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}"),
           std::string("{% set s = 'ab' * 100000 %}{% for i in range(90000) %}{{ s }}{% endfor %}"),
           std::string("{% set s = 'a' * 1000000 %}{{ s.replace('a', s) }}"),
           std::string("{% set s = 'a' * 1000000 %}{{ s.split('a') | join(s) }}"),
           std::string("{% set s = 'a' * 9000000 %}{% for i in range(90000) %}{% set t = s in s %}{% endfor %}"),
           "{{ " + times("(", 400) + "1" + times(")", 400) + " }}",
           "{{ " + times("[", 400) + times("]", 400) + " }}",
           "{{ " + times("not ", 5000) + "1 }}",
           "{{ " + times("-", 5000) + "1 }}",
           "{{ 1" + times(" + 1", 5000) + " }}",
           "{{ x" + times(".y", 5000) + " }}",
           "{{ x" + times("|trim", 5000) + " }}",
           times("{% if x %}", 5000),
           times("{% for x in y %}", 5000),
           std::string("{{ range(1000000000) }}"),
           std::string("{{ [1]|tojson(indent=1000000000) }}"),
           std::string("{{ 'a'|indent(1000000000) }}"),
           std::string("{% set n = namespace() %}{% set n.n = n %}"),
           std::string((size_t{1} << 20) + 1, 'x'),
       }) {
    INFO(bomb.substr(0, 100));
    CHECK(message_of([&] { text_of_template(bomb); }).find("the chat template") == 0);
  }
}

TEST_CASE("chat template: a macro is not used outside its block") {
  const std::string text =
      "{% set n = namespace(f=1) %}{% for i in [1] %}{% macro f() %}x{% endmacro %}{{ f() }}{% endfor %}{{ f is "
      "defined }}";
  CHECK(text_of_template(text) == "xFalse");
  CHECK(refusal_of("{% macro f() %}x{% endmacro %}{% set n = namespace(g=f) %}").find("cannot be stored") !=
        std::string::npos);
}

TEST_CASE("chat template: the date is the caller's") {
  ChatPrompt prompt;
  prompt.now = 86400 * 45;  // the middle of February 1970 in every time zone
  CHECK(ChatTemplate("{{ strftime_now('%B %Y') }}").render(prompt) == "February 1970");
}

TEST_CASE("chat template: without one, messages are those of ChatML") {
  ChatPrompt prompt;
  prompt.messages = {boost::json::object{{"role", "user"}, {"content", "Hi"}}};
  CHECK(ChatTemplate::usual().render(prompt) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}
