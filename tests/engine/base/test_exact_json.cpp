#include <cmath>
#include <random>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <fmt/core.h>

#include "formats/exact_json.hpp"

using namespace harmonics;

namespace json = boost::json;

TEST_CASE("json: real numbers are the doubles nearest to their text") {
  CHECK(parse_json("22.627416997969522").as_double() == 22.627416997969522);
  CHECK(parse_json(" [-0.0] ").at(0).as_double() == 0);
  CHECK(std::signbit(parse_json("-0.0").as_double()));
  CHECK(parse_json("{\"a\":1.5E-7}").at("a").as_double() == 1.5e-7);
  CHECK(parse_json("1e308").as_double() == 1e308);
  CHECK(std::isinf(parse_json("1e400").as_double()));
  CHECK(parse_json("1e-400").as_double() == 0);
  CHECK(parse_json("1.5222222222222222222222222222222222222222").as_double() == 1.5222222222222222);
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const double value = std::ldexp(std::normal_distribution<double>()(random), static_cast<int>(random() % 200) - 100);
    const std::string text = json::serialize(json::array{value});
    REQUIRE(parse_json(text).at(0).as_double() == value);
    REQUIRE(json::serialize(parse_json(text)) == text);
    REQUIRE(parse_json(fmt::format("{:.17g}", value)).to_number<double>() == value);
  }
}

TEST_CASE("json: values other than real numbers are those of Boost.JSON") {
  for (const char* text : {R"({"a":[1,-2,18446744073709551615,true,false,null,{}],"b":"\u00e9\n\ud83d\ude00","a":[]})",
                           "7", "\"x\"", " [ ] ", "{\"\":{\"\":[[[]]]}}", "1.5"})
    CHECK(parse_json(text) == json::parse(text));
  const std::string longer(5000, 'k');
  const std::string large = "{\"" + longer + "\":\"" + longer + "\\n" + longer + "\"}";
  CHECK(parse_json(large) == json::parse(large));
}

TEST_CASE("json: invalid texts are refused with the place of the error") {
  for (const char* text :
       {"", " ", "{", "[1,]", "{\"a\" 1}", "\"\\x\"", "tru", "01", "1.", "-", "\"\xff\"", "[1] 2", "nan"}) {
    INFO(text);
    json::error_code failed, expected;
    json::parse(text, expected);
    CHECK(parse_json(text, failed).is_null());
    CHECK(failed);
    CHECK(expected);
    CHECK_THROWS_AS(parse_json(text), boost::system::system_error);
  }
  json::error_code failed;
  size_t read = 0;
  parse_json("[1, 2, x]", failed, 64, &read);
  CHECK(read == 7);
  failed = {};
  CHECK(parse_json("[[[]]]", failed, 3).is_array());
  CHECK(!failed);
  parse_json("[[[]]]", failed, 2);
  CHECK(failed == json::error::too_deep);
}
