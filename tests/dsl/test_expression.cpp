// Arithmetic expressions of model specs.
#include <catch2/catch.hpp>

#include <limits>

#include "dsl/spec/expression.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

specs::Number variable_value(const std::string& name) {
  if (name == "d_model") return int64_t{24};
  if (name == "i") return int64_t{3};
  if (name == "eps") return 0.5;
  throw Error(ErrorKind::Name, "no variable " + name);
}

int64_t whole_of(const std::string& text) { return specs::Expression(text, "here").whole(variable_value); }
double real_of(const std::string& text) { return specs::Expression(text, "here").real(variable_value); }

}  // namespace

TEST_CASE("spec expressions: operators bind as usual, and braces mark variables") {
  const std::pair<const char*, int64_t> cases[] = {{"7", 7},
                                                   {"1 + 2 * 3", 7},
                                                   {"(1 + 2) * 3", 9},
                                                   {"10 - 4 - 3", 3},
                                                   {"-2 * -3", 6},
                                                   {"- (1 - 3)", 2},
                                                   {"d_model / 5", 4},
                                                   {"{d_model} % 5", 4},
                                                   {"{ i } * {d_model}", 72},
                                                   {"-7 / 2", -3},
                                                   {"-7 % 2", -1},
                                                   {"min(4, 2, 3)", 2},
                                                   {"max(d_model, i)", 24},
                                                   {"ceil_div(7, 2)", 4},
                                                   {"ceil_div(8, 2)", 4},
                                                   {"ceil_div(-7, 2)", -3},
                                                   {"9223372036854775807 - 1", std::numeric_limits<int64_t>::max() - 1},
                                                   {" min ( 1 , 2 ) ", 1}};
  for (const auto& [text, value] : cases) {
    INFO(text);
    CHECK(whole_of(text) == value);
    if (value < 100 && value > 0 && std::string(text).find('/') == std::string::npos &&
        std::string(text).find("div") == std::string::npos)
      CHECK(real_of(text) == static_cast<double>(value));
  }
  CHECK(real_of("1 / sqrt(d_model + 1)") == 0.2);
  CHECK(real_of("eps * 3e-1") == 0.15);
  CHECK(specs::Expression().whole(variable_value) == 0);
  CHECK(specs::Expression("a + {b} * a", "").variables() == std::vector<std::string>{"a", "b"});
}

TEST_CASE("spec expressions: an error has the place and the column") {
  const std::pair<const char*, const char*> cases[] = {
      {"", "here: column 1 of '': a number or a variable is missing at the end"},
      {"1 +", "here: column 4 of '1 +': a number or a variable is missing at the end"},
      {"1 2", "here: column 3 of '1 2': '2' does not belong here"},
      {"(1", "here: column 3 of '(1': ')' is missing"},
      {"{1}", "here: column 2 of '{1}': a variable's name is missing"},
      {"{a", "here: column 3 of '{a': '}' is missing"},
      {"2 * $", "here: column 5 of '2 * $': '$' is neither a number nor a variable"},
      {"pow(2, 3)", "here: column 1 of 'pow(2, 3)': there is no function 'pow'"},
      {"1 + min(2)", "here: column 5 of '1 + min(2)': min takes two or more, not 1"},
      {"ceil_div(2, 3, 4)", "here: column 1 of 'ceil_div(2, 3, 4)': ceil_div takes two arguments, not 3"},
      {"9223372036854775808", "here: column 1 of '9223372036854775808': the number is too large"},
      {"i / (i - 3)", "here: column 3 of 'i / (i - 3)': 3 is divided by 0"},
      {"7 % 0", "here: column 3 of '7 % 0': 7 is divided by 0"},
      {"9223372036854775807 + i",
       "here: column 21 of '9223372036854775807 + i': the result of 9223372036854775807 and 3 is beyond 64 bits"},
      {"eps * 2", "here: column 1 of 'eps * 2': 'eps' is 0.5, but a whole number is needed"},
      {"1.5", "here: column 1 of '1.5': a whole number is needed"}};
  for (const auto& [text, message] : cases) {
    INFO(text);
    const std::string found = message_of([&, text = text] { whole_of(text); });
    CHECK(found.substr(0, found.find('\n')) == message);
  }
  CHECK(message_of([] { real_of("sqrt(0 - 4)"); }).find("-4 has no root") != std::string::npos);
  CHECK(message_of([] { real_of("eps / 0"); }).find("0.5 is divided by 0") != std::string::npos);
  CHECK(message_of([] { real_of("1e308 * 10"); }).find("the result is inf") != std::string::npos);
  CHECK(message_of([] { whole_of("(-9223372036854775807 - 1) / -1"); }).find("beyond 64 bits") != std::string::npos);
  CHECK(whole_of("(-9223372036854775807 - 1) % -1") == 0);
  CHECK(message_of([] {
          whole_of(std::string(100, '(') + "1" + std::string(100, ')'));
        }).find("more than 64 levels of parentheses and signs") != std::string::npos);
  CHECK(message_of([] { whole_of(std::string(5000, '1')); }).find("the limit is 4096") != std::string::npos);
}
