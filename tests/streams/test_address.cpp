#include <catch2/catch.hpp>

#include <random>

#include "engine/base/address.hpp"
#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using harmonics::engine::testing::refusal;

TEST_CASE("an address has scheme, path, options and fragment") {
  const Address a = parse_address("file:dir/a%3Fb.csv?shuffle=8192&missing=a%26b%20c&empty=#x,y#z");
  CHECK(a.scheme == "file");
  CHECK(a.path == "dir/a?b.csv");
  REQUIRE(a.options.size() == 3);
  CHECK(a.options[0].key == "shuffle");
  CHECK(*a.find("missing") == "a&b c");
  CHECK(*a.find("empty") == "");
  CHECK(a.find("none") == nullptr);
  CHECK(*a.fragment == "x,y#z");
}

TEST_CASE("a bare path is a file") {
  for (const char* path : {"data.csv", "/tmp/x y", "./a:b", "a.b:c", "a/b:c", "../shared/x.gz"}) {
    const Address a = parse_address(path);
    CHECK(a.scheme == "file");
    CHECK(a.path == path);
    CHECK(!a.fragment);
  }
}

TEST_CASE("the text after the scheme is the path, slashes included") {
  CHECK(parse_address("zmq+router://127.0.0.1:5555").scheme == "zmq+router");
  CHECK(parse_address("zmq+router://127.0.0.1:5555").path == "//127.0.0.1:5555");
  CHECK(parse_address("stdout:").path == "");
  CHECK(parse_address("synth:digits#label").fragment == "label");
  CHECK(parse_address("x:y#").fragment == "");
  CHECK(parse_address("file:a#b?c=d").fragment == "b?c=d");
}

TEST_CASE("an option can be taken out") {
  Address a = parse_address("file:x?a=1&b=2");
  CHECK(a.take("a") == "1");
  CHECK(a.take("a") == std::nullopt);
  CHECK(a.str() == "file:x?b=2");
}

TEST_CASE("broken addresses are refused with a suggested correction") {
  CHECK(refusal([] { parse_address(""); }) == "address '' is empty; write SCHEME:PATH, for example file:data.csv");
  CHECK(refusal([] { parse_address(":x"); }) ==
        "address ':x' has no scheme before its colon; write for example file:x");
  CHECK(refusal([] { parse_address("file:a%2"); }) ==
        "address 'file:a%2' has '%2' at character 7 where '%' and two hexadecimal digits were expected; write '%25' "
        "for a percent sign");
  CHECK(refusal([] { parse_address("file:a%00"); }) ==
        "address 'file:a%00' has a zero byte '%00' at character 7; leave it out");
  CHECK(refusal([] { parse_address("file:a?b"); }) ==
        "address 'file:a?b' has the option 'b' without a value; write b=VALUE");
  CHECK(refusal([] { parse_address("file:a?b=1&&c=2"); }) ==
        "address 'file:a?b=1&&c=2' has an empty option at character 12; write ?key=value&key=value");
  CHECK(refusal([] { parse_address("file:a?"); }) ==
        "address 'file:a?' has an empty option at character 8; write ?key=value&key=value");
  CHECK(refusal([] { parse_address("file:a?=1"); }) ==
        "address 'file:a?=1' has an option without a name: '=1'; write ?key=value&key=value");
  CHECK(refusal([] { parse_address("file:a?b=1&b=2"); }) ==
        "address 'file:a?b=1&b=2' gives the option 'b' twice; leave one of them out");
}

TEST_CASE("any address survives a round trip through its text") {
  std::mt19937 random(1);
  const std::string characters = "ab:/?#%&= +\xC3\xA9,";
  const auto word = [&](size_t least) {
    std::string s;
    for (size_t n = least + random() % 8; s.size() < n;) s += characters[random() % characters.size()];
    return s;
  };
  for (int i = 0; i < 2000; ++i) {
    Address a;
    a.scheme = "s";
    a.path = word(0);
    for (uint32_t k = random() % 3; k > 0; --k) a.options.push_back({std::to_string(k) + word(0), word(0)});
    if (random() % 2) a.fragment = word(0);
    const Address b = parse_address(a.str());
    INFO(a.str());
    CHECK(b.path == a.path);
    CHECK(b.fragment == a.fragment);
    REQUIRE(b.options.size() == a.options.size());
    for (size_t k = 0; k < a.options.size(); ++k) {
      CHECK(b.options[k].key == a.options[k].key);
      CHECK(b.options[k].value == a.options[k].value);
    }
  }
}

TEST_CASE("a binding names its stream, or none") {
  const Binding named = parse_binding("images=file:x.csv?a=b");
  CHECK(named.name == "images");
  CHECK(named.address.str() == "file:x.csv?a=b");
  CHECK(parse_binding("file:x?a=b").name == "");
  CHECK(parse_binding("x.csv").name == "");
  CHECK(parse_binding("_a1=x.csv").name == "_a1");
  CHECK(refusal([] { parse_binding("a="); }) == "'a=' binds 'a' to no address; write a=file:PATH");
}
