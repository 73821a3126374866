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

double value_of(const NumberBound& bound) {
  const double decimals = std::atof(("0." + bound.fraction).c_str());
  return static_cast<double>(bound.value) + (bound.value < 0 || bound.below_zero ? -decimals : decimals);
}

bool within(double value, const Bound& least, const Bound& most) {
  if (least && (least->open ? value <= value_of(*least) : value < value_of(*least))) return false;
  return !most || (most->open ? value < value_of(*most) : value <= value_of(*most));
}

std::string shown(const Bound& bound) {
  return bound ? std::to_string(value_of(*bound)) + (bound->open ? " open" : "") : "none";
}

std::shared_ptr<const Grammar> grammar_of_json(const std::string& schema) {
  return std::make_shared<const Grammar>(grammar_of_schema(boost::json::parse(schema)));
}
std::string refusal_of(const std::string& schema) {
  return harmonics::message_of([&] { grammar_of_schema(boost::json::parse(schema)); });
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
  const Bound bounds[] = {std::nullopt,
                          NumberBound{-120, false},
                          NumberBound{-10, true},
                          NumberBound{-7, false},
                          NumberBound{0, false},
                          NumberBound{0, true},
                          NumberBound{1, false},
                          NumberBound{9, true},
                          NumberBound{95, false},
                          NumberBound{100, true},
                          NumberBound{107, false},
                          number_bound(0.05, false),
                          number_bound(7.3, true),
                          number_bound(7.25, false),
                          number_bound(-0.125, true),
                          number_bound(-7.5, false)};
  for (const Bound& least : bounds)
    for (const Bound& most : bounds) {
      INFO("from " << shown(least) << " to " << shown(most));
      const bool whole = (!least || least->fraction.empty()) && (!most || most->fraction.empty());
      const auto integers = grammar_of(whole ? integers_between(least, most) : ""),
                 numbers = grammar_of(numbers_between(least, most));
      for (int value = -130; value <= 130; ++value) {
        const std::string text = std::to_string(value);
        INFO(text);
        if (whole) REQUIRE((integers && fits(integers, text)) == within(value, least, most));
        for (const char* fraction :
             {"", ".0", ".5", ".50", ".001", ".25", ".2500", ".249", ".251", ".3", ".30", ".299"}) {
          const std::string with = text + fraction;
          INFO(with);
          REQUIRE((numbers && fits(numbers, with)) == within(std::atof(with.c_str()), least, most));
        }
      }
      for (const char* small : {"-0.5", "-0.001", "0.5", "0.05", "0.049", "0.050", "-0.125", "-0.1250", "-0.124"}) {
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

TEST_CASE("json schema: bounds of numbers with decimals") {
  const auto share = grammar_of_json(R"({"type": "number", "minimum": 0.25, "exclusiveMaximum": 1.5})");
  for (const char* good : {"0.25", "0.3", "0.250", "1", "1.0", "1.49999"}) CHECK(fits(share, good));
  for (const char* bad : {"0", "0.2", "0.2499", "-0.3", "1.5", "1.50", "1.6", "2", "3e-1"})
    CHECK_FALSE(fits(share, bad));
  const auto small = grammar_of_json(R"({"type": "number", "minimum": -1e-7, "maximum": 1e-7})");
  CHECK(fits(small, "0.0000001"));
  CHECK(fits(small, "-0.00000005"));
  CHECK_FALSE(fits(small, "0.00000011"));
  const auto stricter = grammar_of_json(
      R"({"type": "number", "minimum": -0.5, "exclusiveMinimum": -0.25, "maximum": 0.75, "exclusiveMaximum": 0.5})");
  CHECK(fits(stricter, "-0.2"));
  CHECK_FALSE(fits(stricter, "-0.25"));
  CHECK_FALSE(fits(stricter, "0.5"));
  CHECK(fits(stricter, "0.4"));
  CHECK(refusal_of(R"({"type": "number", "minimum": 0.3333333333333333})") ==
        "the JSON schema, #/minimum: it has at most 15 decimals");
  CHECK(refusal_of(R"({"type": "number", "minimum": 0.5, "exclusiveMaximum": 0.5})") ==
        "the JSON schema, #: no number is within its bounds");
}

TEST_CASE("json schema: multiples of a number") {
  struct Row {
    const char* keywords;
    long step, least, most;  // beyond +-1000: no bound
  };
  for (const auto& [keywords, step, least, most] :
       {Row{R"("multipleOf": 5, "minimum": 0, "maximum": 100)", 5, 0, 100}, Row{R"("multipleOf": 7)", 7, -9999, 9999},
        Row{R"("multipleOf": 7, "minimum": 0)", 7, 0, 9999},
        Row{R"("multipleOf": 12, "exclusiveMinimum": 0)", 12, 1, 9999},
        Row{R"("multipleOf": 64, "maximum": 0)", 64, -9999, 0}, Row{R"("multipleOf": 100)", 100, -9999, 9999},
        Row{R"("multipleOf": 100, "minimum": -250, "maximum": 1e9)", 100, -250, 9999},
        Row{R"("multipleOf": 30, "minimum": 1)", 30, 1, 9999}, Row{R"("multipleOf": 0.5)", 1, -9999, 9999},
        Row{R"("multipleOf": 2.5, "maximum": -1)", 5, -9999, -1}, Row{R"("multipleOf": 1)", 1, -9999, 9999},
        Row{R"("multipleOf": 3, "minimum": -7.5, "maximum": 8.5)", 3, -7, 8}}) {
    INFO(keywords);
    const auto grammar = grammar_of_json(std::string(R"({"type": "integer", )") + keywords + "}");
    for (long value = -700; value <= 700; ++value) {
      INFO(value);
      REQUIRE(fits(grammar, std::to_string(value)) == (value % step == 0 && value >= least && value <= most));
    }
    for (const char* wrong : {"", "-", "00", "05", "1.0", "1e2", "0100"}) CHECK_FALSE(fits(grammar, wrong));
  }
  const auto large = grammar_of_json(R"({"type": "integer", "multipleOf": 7})");
  CHECK(fits(large, "700000000000000007"));
  CHECK_FALSE(fits(large, "700000000000000008"));
  const auto price = grammar_of_json(R"({"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 9.995})");
  for (const char* good : {"0", "9.99", "0.5", "3"}) CHECK(fits(price, good));
  for (const char* bad : {"9.995", "0.001", "10", "-1"}) CHECK_FALSE(fits(price, bad));
  const auto stars = grammar_of_json(R"({"type": "number", "multipleOf": 0.5, "exclusiveMinimum": 0, "maximum": 2})");
  for (const char* good : {"0.5", "1", "1.5", "2"}) CHECK(fits(stars, good));
  for (const char* bad : {"0", "0.25", "2.5", "1.50"}) CHECK_FALSE(fits(stars, bad));
  const auto signs = grammar_of_json(R"({"type": "number", "multipleOf": 0.25, "minimum": -0.6, "maximum": 0.3})");
  for (const char* good : {"-0.5", "-0.25", "0", "0.25"}) CHECK(fits(signs, good));
  for (const char* bad : {"-0.75", "0.5", "-0"}) CHECK_FALSE(fits(signs, bad));
}

TEST_CASE("json schema: multiples that no small grammar expresses are refused with a remedy") {
  CHECK(refusal_of(R"({"type": "number", "multipleOf": 0})") ==
        "the JSON schema, #/multipleOf: it is a number above 0");
  CHECK(refusal_of(R"({"type": "number", "multipleOf": 0.25})") ==
        "the JSON schema, #/multipleOf: more than 1000 multiples of 0.25 are within its bounds\n"
        "give minimum and maximum nearer to each other, or a step such as 0.1 or 0.01");
  CHECK(refusal_of(R"({"type": "integer", "multipleOf": 97})") ==
        "the JSON schema, #/multipleOf: more than 1000 multiples of 97 are not supported\n"
        "give bounds, or a step of at most 64, also times a power of ten");
  CHECK(refusal_of(R"({"type": "integer", "multipleOf": 7, "minimum": 100})") ==
        "the JSON schema, #/multipleOf: more than 1000 multiples of 7 are within its bounds\n"
        "give bounds that are nearer, none, or 0");
  CHECK(refusal_of(R"({"type": "integer", "multipleOf": 10, "minimum": 3, "maximum": 7})") ==
        "the JSON schema, #: no number is within its bounds");
}

TEST_CASE("json schema: different items of known values") {
  const auto tags = grammar_of_json(R"({"type": "array", "items": {"$ref": "#/$defs/tag"}, "uniqueItems": true,
      "minItems": 1, "maxItems": 2, "$defs": {"tag": {"enum": ["a", "b", 3, "a"]}}})");
  for (const char* good : {R"(["a"])", R"(["b", "a"])", R"([3,"b"])"}) CHECK(fits(tags, good));
  for (const char* bad : {"[]", R"(["a", "a"])", R"(["a", "b", 3])", R"(["a",])", R"(["c"])"})
    CHECK_FALSE(fits(tags, bad));
  const auto any = grammar_of_json(R"({"type": "array", "items": {"type": "boolean"}, "uniqueItems": true})");
  for (const char* good : {"[]", "[true]", "[false, true]"}) CHECK(fits(any, good));
  CHECK_FALSE(fits(any, "[true, true]"));
  // At most one item differs from itself.
  CHECK(fits(grammar_of_json(R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true, "maxItems": 1})"),
             R"(["a"])"));
  CHECK(fits(grammar_of_json(R"({"type": "array", "items": {"type": "integer"}, "uniqueItems": false})"), "[1, 1]"));
  CHECK(refusal_of(R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true})") ==
        "the JSON schema, #/uniqueItems: it is supported for items of an enum of at most 10 values\n"
        "omit it and remove duplicates afterwards");
  CHECK(refusal_of(R"({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": true, "minItems": 3})") ==
        "the JSON schema, #/minItems: there are fewer different items");
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
  CHECK(harmonics::message_of([] { fits_string(R"("format": "iri")", ""); }).find("#/format: 'iri' is not") !=
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
