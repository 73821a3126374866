#include <catch2/catch.hpp>

#include <algorithm>
#include <string>

#include "engine/base/spelling.hpp"

using namespace harmonics;
using namespace harmonics::engine;

TEST_CASE("spelling: distances between words") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("relu", "relu") == 0);
  CHECK(edit_distance("relu", "rleu") == 1);
  CHECK(edit_distance("prodcer", "producer") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("ca", "abc") == 3);  // no edit between the swapped letters
}

TEST_CASE("spelling: distances are symmetric and satisfy the triangle inequality") {
  const std::vector<std::string> words = {"", "a", "ab", "ba", "abc", "acb", "layer", "lyaer", "relu", "rule"};
  for (const auto& a : words) {
    for (const auto& b : words) {
      CHECK(edit_distance(a, b) == edit_distance(b, a));
      CHECK((edit_distance(a, b) == 0) == (a == b));
    }
  }
}

TEST_CASE("spelling: the nearest word is found within a third of the length") {
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

TEST_CASE("meant_by: case comes first, then synonyms, then distance") {
  CHECK(meant_by("Relu", {"celu", "relu"}) == std::vector<std::string>{"relu"});
  CHECK(meant_by("MSE", {"mae", "mse"}) == std::vector<std::string>{"mse"});
  CHECK(meant_by("gpu", {"cpu", "cuda", "opencl", "reference", "auto"}) ==
        std::vector<std::string>{"cuda", "opencl", "auto"});
  CHECK(meant_by("GPU", {"cpu", "cuda"}) == std::vector<std::string>{"cuda"});
  CHECK(meant_by("acc", {"auc", "accuracy"}) == std::vector<std::string>{"accuracy"});
  CHECK(meant_by("evalaute", {"run", "infer"}) == std::vector<std::string>{"run"});  // "evaluate" is near
  CHECK(meant_by("tak", {"part", "take"}) == std::vector<std::string>{"take"});
  CHECK(meant_by("EPOCS", {"STEPS", "EPOCHS"}) == std::vector<std::string>{"EPOCHS"});
  CHECK(meant_by("fly", {"run", "infer", "list"}).empty());
  CHECK(meant_by(std::string(5000, 'a'), {"a"}).empty());
}

TEST_CASE("did_you_mean: gives a sentence, or nothing") {
  CHECK(did_you_mean("gpu", {"cuda", "opencl", "auto"}) == "did you mean 'cuda', 'opencl' or 'auto'?");
  CHECK(did_you_mean("gpu", {"cuda", "opencl"}) == "did you mean 'cuda' or 'opencl'?");
  CHECK(did_you_mean("rleu", {"relu"}) == "did you mean 'relu'?");
  CHECK(did_you_mean("something", {"relu"}).empty());
}

TEST_CASE("synonyms: rows are in lower case, and none maps to itself") {
  for (const Synonym& s : synonyms()) {
    INFO(s.word);
    CHECK(s.word != s.name);
    CHECK(std::none_of(s.word.begin(), s.word.end(), [](char c) { return c >= 'A' && c <= 'Z'; }));
  }
}
