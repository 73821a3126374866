// Training byte-pair merges, compared with the library `tokenizers` (tests/parity/make_pair_training.py).
#include <catch2/catch.hpp>

#include <fstream>
#include <iterator>

#include <boost/json.hpp>

#include "tokens/byte_pair_training.hpp"

using namespace harmonics::tokens;

TEST_CASE("byte pairs: training gives the merges of tokenizers") {
  std::ifstream in(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/pair_training.json");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const boost::json::value golden = boost::json::parse(text);
  PairTraining training;
  for (const boost::json::value& line : golden.at("lines").as_array()) training.add(std::string(line.as_string()));
  const TrainedPairs trained = training.train(static_cast<size_t>(golden.at("size").as_int64()), {"<|endoftext|>"}, 2);
  const boost::json::array& expected = golden.at("merges").as_array();
  REQUIRE(expected.size() > 50);
  REQUIRE(trained.merges.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO("merge " << i);
    CHECK(trained.tokens[static_cast<size_t>(trained.merges[i].first)] == std::string(expected[i].at(0).as_string()));
    CHECK(trained.tokens[static_cast<size_t>(trained.merges[i].second)] == std::string(expected[i].at(1).as_string()));
  }
}

TEST_CASE("byte pairs: training ends when no pair is frequent enough") {
  PairTraining training;
  training.add("ab ab cd");
  const TrainedPairs trained = training.train(1000, {}, 2);
  CHECK(trained.tokens.size() == 257);  // the bytes and "ab"; " ab" occurs only once
  CHECK(trained.tokens.back() == "ab");
}
