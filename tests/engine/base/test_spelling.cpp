#include <catch2/catch.hpp>

#include "engine/base/spelling.hpp"

using namespace harmonics;

TEST_CASE("distances between words") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("relu", "relu") == 0);
  CHECK(edit_distance("relu", "rleu") == 1);
  CHECK(edit_distance("prodcer", "producer") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("ca", "abc") == 3);  // no edit between the swapped letters
}

TEST_CASE("distances are symmetric and obey the triangle") {
  const std::vector<std::string> words = {"", "a", "ab", "ba", "abc", "acb", "layer", "lyaer", "relu", "rule"};
  for (const auto& a : words) {
    for (const auto& b : words) {
      CHECK(edit_distance(a, b) == edit_distance(b, a));
      CHECK((edit_distance(a, b) == 0) == (a == b));
    }
  }
}

TEST_CASE("the nearest word is found within a third of the length") {
  const std::vector<std::string> known = {"hidden", "output", "input", "relu", "gelu"};
  CHECK(nearest("hiden", known) == "hidden");
  CHECK(nearest("ouptut", known) == "output");
  CHECK(nearest("inptu", known) == "input");
  CHECK(nearest("elu", known) == "relu");  // ties: the first
  CHECK(nearest("hidden", known) == "hidden");
  CHECK(nearest("sigmoid", known) == std::nullopt);
  CHECK(nearest("x", {"y"}) == std::nullopt);
  CHECK(nearest("", known) == std::nullopt);
  CHECK(nearest("hiden", {}) == std::nullopt);
}
