// Chat templates: positions of errors, and limits of what a template may do.
#include <catch2/catch.hpp>

#include <random>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <harmonics/error.hpp>

#include "engine/language/chat_template.hpp"
#include "engine/language/template_text.hpp"
#include "tests/engine/execution/allocation_count.hpp"
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

TEST_CASE("chat template: bombs end at a limit that counts operations") {
  const std::string steps = "takes more than 40000 steps, the limit for these messages";
  const std::string bytes = "makes values of more than 2097152 bytes, the limit for these messages";
  const std::string nested = "nested more than 160 deep";
  const std::string text = "{% set s = 'aaaaaaaaaaaaaaaa' * 2000 %}";  // 32,000 bytes
  const std::vector<std::pair<std::string, std::string>> bombs = {
      {"{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}", bytes},
      {"{% for a in range(500) %}{% for b in range(500) %}{% endfor %}{% endfor %}", steps},
      {"{% for a in range(9000) if range(9000) is sequence %}{% endfor %}", bytes},
      {"{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "calls itself more than 400 deep"},
      {"{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n }}{% endmacro %}{{ f(40) }}", steps},
      {"{{ 'aaaaaaaaaaaaaaaa' * 1000000000000 }}", bytes},
      {"{{ [1, 2] * 1000000000000 }}", bytes},
      {"{% set n = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}", bytes},
      {"{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}", bytes},
      {"{% set n = namespace(s=[1]) %}{% for i in range(90) %}{% set n.s = [n.s] %}{% endfor %}", "64 deep"},
      {"{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}",
       "is larger than"},
      {"{% set n = namespace(s=[1]) %}{% for i in range(18) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}", steps},
      {"{% set n = namespace(s=[1]) %}{% for i in range(18) %}{% set n.s = [n.s, n.s] %}{% endfor %}"
       "{% set m = namespace(s=[1]) %}{% for i in range(18) %}{% set m.s = [m.s, m.s] %}{% endfor %}{{ n.s == m.s }}",
       steps},
      {"{% set n = namespace(s='aa') %}{% for i in range(60) %}{% set n.s = n.s|replace('a', 'aa') %}{% endfor %}",
       steps},
      {text + "{% for i in range(900) %}{{ s }}{% endfor %}", "writes more than 1048576 bytes, the limit"},
      {text + "{% for i in range(900) %}{% set t %}{{ s }}{% endset %}{% endfor %}", "writes more than 1048576 bytes"},
      {text + "{{ s.replace('aaaaaaaaaaaaaaaa', s) }}", bytes},
      {text + "{{ s.split('aaaaaaaaaaaaaaaa') | join(s) }}", bytes},
      {text + "{% for i in range(900) %}{% set t = s in s %}{% endfor %}", steps},
      {text + "{% for i in range(900) %}{% set t = 'aaaaaaaaaaaab' in s %}{% endfor %}", steps},
      {text + "{% for i in range(900) %}{% set t = s.strip('a') %}{% endfor %}", steps},
      {text + "{% for i in range(900) %}{% set t = s.startswith(s) %}{% endfor %}", steps},
      {text + "{% for i in range(900) %}{% set t = s|length %}{% endfor %}", steps},
      {text + "{% for i in range(900) %}{% set t = s|title|e|int %}{% endfor %}", steps},
      {text + "{{ s|list|sort }}", bytes},
      {"{% for c in 'aaaaaaaaaaaaaaaa' * 60000 %}{% endfor %}", bytes},
      {"{% for i in range(900) %}{% set t = range(900)|sort|reverse|list %}{% endfor %}", steps},
      {"{{ range(9000)|unique|list }}", steps},
      {"{% set n = namespace(v=[1] * 15000) %}{% for i in range(60) %}{% set n.v = [n.v] %}{% endfor %}"
       "{{ n.v|tojson(indent=64) }}",
       bytes},
      {"{{ x" + times(".y", 5000) + " }}", nested},
      {"{{ x" + times("|trim", 5000) + " }}", nested},
      {"{{ " + times("(", 400) + "1" + times(")", 400) + " }}", nested},
      {"{{ " + times("[", 400) + times("]", 400) + " }}", nested},
      {"{{ " + times("not ", 5000) + "1 }}", nested},
      {"{{ " + times("-", 5000) + "1 }}", nested},
      {"{{ 1" + times(" + 1", 5000) + " }}", nested},
      {times("{% if x %}", 5000), nested},
      {times("{% for x in y %}", 5000), nested},
      {"{{ 'a'|map(" + times("'map', ", 200) + "'trim')|list }}", "64 deep"},
      {"{{ 'a'|map(" + times("'map', ", 5000) + "'trim')|list }}", "more than 256 arguments"},
      {times("{{ x }}", 20000), "more than 32768 words, signs and texts"},
      {"{{ " + times("x", 129) + " }}", "a name has more than 128 bytes"},
      {"{{ range(1000000000) }}", "'range' has more than 100000 numbers"},
      {"{{ range(-9223372036854775807, 9223372036854775807) }}", "'range' has more than 100000 numbers"},
      {"{{ [1]|tojson(indent=1000000000) }}", "the width 1000000000 is not within"},
      {"{{ 'a'|indent(1000000000) }}", "the width 1000000000 is not within"},
      {"{% set n = namespace() %}{% set n.n = n %}", "cannot be stored in a namespace"},
      {std::string((size_t{1} << 20) + 1, 'x'), "the limit is 1048576"},
  };
  for (const auto& [bomb, limit] : bombs) {
    INFO(bomb.substr(0, 200));
    uint64_t allocations = 0;
    const std::string message = message_of([&] {
      const ChatTemplate made(bomb);
      testing::start_counting();
      const std::string why = message_of([&] { made.render({}); });
      allocations = testing::stop_counting();
      throw Error(ErrorKind::Usage, why);
    });
    const bool placed = message.rfind("the chat template, line 1, column ", 0) == 0;
    CHECK((placed || message.rfind("the chat template has 1048577 bytes", 0) == 0));
    CHECK(message.find(limit) != std::string::npos);
    CHECK(allocations < 100'000);
  }
}

TEST_CASE("chat template: what one filter does is proportional to its texts") {
  for (const auto& [text, result] : std::vector<std::pair<std::string, std::string>>{
           {"{% set s = 'ab' * 9000 %}{{ s.strip(s) }}{{ s|trim(s) }}", ""},
           {"{% set s = 'aaaaaaaaaaaaaaaa' * 2000 %}{{ s.find(s ~ 'b') }}{{ s.rfind('b' ~ s) }}", "-1-1"},
           {"{% set s = 'aaaaaaaaaaaaaaaa' * 2000 %}{{ s.count('b' ~ s[:9000]) }}{{ s.split(s[:9000] ~ 'b')|length }}",
            "01"},
           {"{{ 'a'|map(" + times("'map', ", 40) + "'upper')|list|length }}", "1"},
       }) {
    INFO(text.substr(0, 100));
    ChatPrompt prompt;
    TemplateWork done;
    CHECK(ChatTemplate(text).render(prompt, &done) == result);
    CHECK(done.steps < 30'000);
  }
}

TEST_CASE("chat template: texts are found from both sides as std::string finds them") {
  jinja::RunLimits limits;
  limits.most = {uint64_t{1} << 40, uint64_t{1} << 40, 0};
  jinja::Budget budget(limits);
  std::mt19937 random(3);
  const auto letters = [&](size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += random() % 8 ? 'a' : 'b';
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string text = letters(random() % 300);
    std::string part = letters(1 + random() % 30);
    if (text.size() > 40 && i % 2) part = text.substr(random() % (text.size() - 40), 1 + random() % 40);
    const size_t from = random() % (text.size() + 1);
    CHECK(jinja::Needle(budget, part).find(text, from) == text.find(part, from));
    CHECK(jinja::Needle(budget, part, true).find(text) == text.rfind(part));
  }
}

TEST_CASE("chat template: the limits grow with the messages") {
  // Looks at all later messages for each one, as templates of models that call tools do.
  const ChatTemplate looks_ahead(
      "{% for m in messages %}{% set n = namespace(later=false) %}{% for l in messages[loop.index:] %}"
      "{% if l.role == 'user' and l.content %}{% set n.later = true %}{% endif %}{% endfor %}"
      "{{ m.role ~ ': ' ~ m.content|trim }}{{ '.' if n.later }}\n{% endfor %}");
  ChatPrompt few, many;
  const auto add = [](ChatPrompt& prompt, size_t count, const std::string& text) {
    for (size_t i = 0; i < count; ++i)
      prompt.messages.push_back(boost::json::object{{"role", i % 2 ? "assistant" : "user"}, {"content", text}});
  };
  add(few, 2, "Hi");
  add(many, 100, "Hi");
  CHECK(looks_ahead.render(few) == "user: Hi\nassistant: Hi\n");
  TemplateWork done;
  CHECK(looks_ahead.render(many, &done).size() == 50 * 10 + 50 * 15 - 2);  // the last two have none behind them
  CHECK(done.steps > ChatTemplate::allowed(few).steps);
  CHECK(done.steps < ChatTemplate::allowed(many).steps);
  add(many, 20, std::string(200'000, 'x'));
  CHECK(looks_ahead.render(many).size() > 4'000'000);
  ChatPrompt endless;
  add(endless, 2, std::string(30'000'000, 'x'));
  CHECK(ChatTemplate::allowed(endless).steps == 20'000'000);
  CHECK(ChatTemplate::allowed(endless).bytes == uint64_t{64} << 20);
  CHECK(ChatTemplate::allowed(endless).output == uint64_t{16} << 20);
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

TEST_CASE("chat template: ChatML lists tools, and writes calls as they are read") {
  using boost::json::object;
  ChatPrompt prompt;
  prompt.tools = {object{{"type", "function"}, {"function", object{{"name", "f"}}}}};
  prompt.messages = {object{{"role", "system"}, {"content", "Be brief"}}, object{{"role", "user"}, {"content", "Hi"}}};
  const std::string list =
      "You may call these functions:\n{\"type\": \"function\", \"function\": {\"name\": \"f\"}}\n"
      "Write a call as <tool_call>{\"name\": NAME, \"arguments\": OBJECT}</tool_call>.<|im_end|>\n";
  CHECK(ChatTemplate::usual().render(prompt) ==
        "<|im_start|>system\nBe brief\n\n" + list + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  prompt.messages.erase(prompt.messages.begin());
  const object function{{"name", "f"}, {"arguments", object{{"x", 1}}}};
  prompt.messages.push_back(
      object{{"role", "assistant"}, {"content", ""}, {"tool_calls", {object{{"function", function}}}}});
  CHECK(ChatTemplate::usual().render(prompt) ==
        "<|im_start|>system\n" + list +
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<tool_call>{\"name\": \"f\", \"arguments\": "
            "{\"x\": 1}}</tool_call><|im_end|>\n<|im_start|>assistant\n");
}
