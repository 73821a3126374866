// Bounds of numbers, patterns and formats of JSON schemas as grammars.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <boost/json.hpp>

#include "engine/language/grammar.hpp"
#include "engine/language/json_grammar.hpp"
#include "engine/language/number_grammar.hpp"
#include "engine/language/pattern_grammar.hpp"
#include "tests/message_of.hpp"

using namespace harmonics::engine;

namespace {

using Bound = std::optional<NumberBound>;

bool fits(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  GrammarText follows(grammar);
  return follows.append(text) && follows.may_end();
}

// Returns the grammar of the alternatives; null if there are none.
std::shared_ptr<const Grammar> grammar_of(const std::string& alternatives) {
  return alternatives.empty() ? nullptr : std::make_shared<const Grammar>("root ::= " + alternatives);
}

bool within(double value, const Bound& least, const Bound& most) {
  if (least && (least->open ? value <= static_cast<double>(least->value) : value < static_cast<double>(least->value)))
    return false;
  return !most || (most->open ? value < static_cast<double>(most->value) : value <= static_cast<double>(most->value));
}

std::string shown(const Bound& bound) {
  return bound ? std::to_string(bound->value) + (bound->open ? " open" : "") : "none";
}

// Returns whether a JSON string follows a schema of the type string.
bool fits_string(const std::string& keywords, const std::string& text) {
  const std::string schema = R"({"type": "string", )" + keywords + "}";
  return fits(std::make_shared<const Grammar>(grammar_of_schema(boost::json::parse(schema))),
              boost::json::serialize(boost::json::string(text)));
}
bool fits_pattern(const std::string& pattern, const std::string& text) {
  return fits_string("\"pattern\": " + boost::json::serialize(boost::json::string(pattern)), text);
}

std::string pattern_refusal(const std::string& pattern) {
  return harmonics::message_of([&] { grammar_of_pattern(pattern); });
}

}  // namespace

TEST_CASE("number grammars: exactly the numbers between the bounds, of either sign") {
  const Bound bounds[] = {std::nullopt,           NumberBound{-120, false}, NumberBound{-10, true},
                          NumberBound{-7, false}, NumberBound{0, false},    NumberBound{0, true},
                          NumberBound{1, false},  NumberBound{9, true},     NumberBound{95, false},
                          NumberBound{100, true}, NumberBound{107, false}};
  for (const Bound& least : bounds)
    for (const Bound& most : bounds) {
      INFO("from " << shown(least) << " to " << shown(most));
      const auto integers = grammar_of(integers_between(least, most)),
                 numbers = grammar_of(numbers_between(least, most));
      for (int value = -130; value <= 130; ++value) {
        const std::string text = std::to_string(value);
        INFO(text);
        REQUIRE((integers && fits(integers, text)) == within(value, least, most));
        for (const char* fraction : {"", ".0", ".5", ".50", ".001"}) {
          const std::string with = text + fraction;
          INFO(with);
          REQUIRE((numbers && fits(numbers, with)) == within(std::atof(with.c_str()), least, most));
        }
      }
      for (const char* small : {"-0.5", "-0.001", "0.5"}) {
        INFO(small);
        REQUIRE((numbers && fits(numbers, small)) == within(std::atof(small), least, most));
      }
      for (const char* wrong : {"", "-", "01", "1.", ".5", "+1", "1e2", "00", "1.2.3"}) {
        INFO(wrong);
        REQUIRE_FALSE((integers && fits(integers, wrong)));
        REQUIRE_FALSE((numbers && fits(numbers, wrong)));
      }
    }
}

TEST_CASE("number grammars: bounds of many digits") {
  const auto years = grammar_of(integers_between(NumberBound{1987, false}, NumberBound{20260, false}));
  for (const auto& [text, good] : std::map<std::string, bool>{{"1986", false},
                                                              {"1987", true},
                                                              {"2000", true},
                                                              {"9999", true},
                                                              {"10000", true},
                                                              {"20259", true},
                                                              {"20260", true},
                                                              {"20261", false},
                                                              {"99999", false}}) {
    INFO(text);
    CHECK(fits(years, text) == good);
  }
  const auto large = grammar_of(integers_between(NumberBound{kLargestBound, true}, std::nullopt));
  CHECK_FALSE(fits(large, "1000000000000000"));
  CHECK(fits(large, "1000000000000001"));
  CHECK(fits(large, "999999999999999999"));
  CHECK_FALSE(fits(large, "-1000000000000001"));
}

TEST_CASE("json schema: the stricter one of two bounds holds") {
  const auto fits_number = [](const char* schema, const char* text) {
    return fits(std::make_shared<const Grammar>(grammar_of_schema(boost::json::parse(schema))), text);
  };
  const char* const kShare = R"({"type": "number", "minimum": 0, "maximum": 1, "exclusiveMaximum": 1})";
  CHECK(fits_number(kShare, "0"));
  CHECK(fits_number(kShare, "0.95"));
  CHECK_FALSE(fits_number(kShare, "1"));
  const char* const kCount = R"({"type": "integer", "minimum": 2.5, "exclusiveMinimum": 1})";
  CHECK_FALSE(fits_number(kCount, "2"));
  CHECK(fits_number(kCount, "3"));
  CHECK(fits_number(R"({"type": ["integer", "null"], "maximum": -1})", "-12"));
  CHECK(fits_number(R"({"type": ["integer", "null"], "maximum": -1})", "null"));
  CHECK_FALSE(fits_number(R"({"type": ["integer", "null"], "maximum": -1})", "0"));
}

TEST_CASE("json schema: durations, and formats and keywords that any value has") {
  for (const char* good : {"P3D", "PT5M", "PT0.5S", "P1Y2M3DT4H5M6S", "P2W", "P1Y", "P1M", "PT1H30S"}) {
    INFO(good);
    CHECK(fits_string(R"("format": "duration")", good));
  }
  for (const char* bad : {"", "P", "3D", "PT", "P1DT", "P1S", "PT1D", "P1W2D", "PT5M "}) {
    INFO(bad);
    CHECK_FALSE(fits_string(R"("format": "duration")", bad));
  }
  CHECK(fits_string(R"("format": "password", "maxLength": 3)", "abc"));
  CHECK_FALSE(fits_string(R"("format": "password", "maxLength": 3)", "abcd"));
  CHECK(harmonics::message_of([] { fits_string(R"("format": "iri")", ""); }).find("#/format: date, time") !=
        std::string::npos);
  const auto either = std::make_shared<const Grammar>(grammar_of_schema(
      boost::json::parse(R"({"oneOf": [{"const": 1}, {"const": 2}], "discriminator": {"propertyName": "kind"}})")));
  CHECK(fits(either, "2"));
  CHECK_FALSE(fits(either, "3"));
}

TEST_CASE("patterns: texts that match are complete") {
  struct Row {
    const char *pattern, *good, *bad;
  };
  for (const auto& [pattern, good, bad] :
       {Row{"^[A-Z]{2}-\\d{3,4}$", "AB-1234", "AB-12"}, Row{"^[A-Z]{2}-\\d{3,4}$", "XY-123", "xAB-123"},
        Row{"b+", "abbc", "ac"}, Row{"^a|z$", "abc", "za1"}, Row{"^a|z$", "xyz", "bc"},
        Row{"^(?:ab|c)*?d?$", "ababc", "aab"}, Row{"^(?<year>[0-9]{4})\\.\\w+$", "2026.x_1", "2026xx"},
        Row{"^[^a-c\\s]$", "\xC3\xA9", "b"}, Row{"^[^a-c\\s]$", "\"", " "}, Row{"^\\S\\W$", "a\\", "ab"},
        Row{"^.$", "\t", "\n"}, Row{"^[\\]\\-x]+$", "x-]", "xy"}, Row{"^[a-]\\u0041\\x42$", "-AB", "bAB"},
        Row{"^\xE4\xBD\xA0[\xE5\xA5\xBD-\xE5\xA5\xBF]$", "\xE4\xBD\xA0\xE5\xA5\xBE", "\xE4\xBD\xA0"},
        Row{"^$", "", "a"}, Row{"", "anything", nullptr}}) {
    INFO(pattern << ": " << good);
    CHECK(fits_pattern(pattern, good));
    if (!bad) continue;
    INFO("and not " << bad);
    CHECK_FALSE(fits_pattern(pattern, bad));
  }
}

TEST_CASE("patterns: what is wrong or not supported is said with its character") {
  CHECK(pattern_refusal("a(?!b)") ==
        "the pattern, character 4: of groups that begin with '?', only (?:...) and (?<name>...) are supported");
  CHECK(pattern_refusal("(?<=a)b").find("the pattern, character 4: of groups") == 0);
  CHECK(pattern_refusal("(a)\\1") == "the pattern, character 6: '\\1' is not supported");
  CHECK(pattern_refusal("\\bx") == "the pattern, character 3: '\\b' is not supported");
  CHECK(pattern_refusal("\\p{L}") == "the pattern, character 3: '\\p' is not supported");
  CHECK(pattern_refusal("(a") == "the pattern, character 3: a group ends with ')'");
  CHECK(pattern_refusal("a)") == "the pattern, character 2: ')' closes nothing");
  CHECK(pattern_refusal("[a") == "the pattern, character 3: a set of characters ends with ']'");
  CHECK(pattern_refusal("[z-a]") == "the pattern, character 5: a range of characters ends before it begins");
  CHECK(pattern_refusal("*a") == "the pattern, character 1: '*' repeats nothing");
  CHECK(pattern_refusal("a$b") == "the pattern, character 2: '$' is only supported at the ends");
  CHECK(pattern_refusal("a{3,2}") == "the pattern, character 6: the largest number of times is below the smallest");
  CHECK(pattern_refusal("a{9999}").find("the limit of a number of times is 1000") != std::string::npos);
  CHECK(pattern_refusal("a\\") == "the pattern, character 3: '\\' ends the pattern");
  CHECK(pattern_refusal("\\u00") == "the pattern, character 5: 4 hexadecimal digits are expected");
  CHECK(pattern_refusal("^\\x01$").find("these characters cannot be in the string") != std::string::npos);
  CHECK(pattern_refusal(std::string(100, '(')).find("it is nested more than 64 deep") != std::string::npos);
  CHECK(pattern_refusal("\xFF") == "the pattern is not UTF-8");
}

TEST_CASE("json schema: formats of strings") {
  const auto check = [](const char* format, const char* good, const char* bad) {
    INFO(format);
    const std::string keyword = std::string("\"format\": \"") + format + "\"";
    CHECK(fits_string(keyword, good));
    CHECK_FALSE(fits_string(keyword, bad));
  };
  check("email", "ann.b+c@mail.example.org", "ann@example");
  check("hostname", "a-1.example", "-a.example");
  check("ipv4", "192.168.0.255", "192.168.0.256");
  check("ipv6", "2001:db8:0:0:0:ff00:42:8329", "2001:db8:0");
  check("uri", "https://x.org/a?b=c#d", "x.org");
  for (const char* good : {"P3W", "P1Y2M3D", "PT5S", "P10DT1H30M"}) check("duration", good, "P");
  for (const char* bad : {"P1D2M", "PT", "P1WT1H", "3D"}) check("duration", "PT1M", bad);
}
