// The training step in the metadata of weights files.
#include <catch2/catch.hpp>

#include "engine/model/weights_version.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;

TEST_CASE("weights version: metadata name the cycle, from 1, and the step") {
  std::map<std::string, std::string> metadata{{"harmonics.name", "g"}};
  record_version({1, 2344}, metadata);
  CHECK(metadata == std::map<std::string, std::string>{
                        {"harmonics.name", "g"}, {"harmonics.cycle", "2"}, {"harmonics.step", "2344"}});
  CHECK(read_version(metadata, "w.safetensors") == WeightsVersion{1, 2344});
}

TEST_CASE("weights version: files without the step have none, and damaged numbers are refused") {
  CHECK_FALSE(read_version({}, "w"));
  CHECK_FALSE(read_version({{"harmonics.cycle", "1"}}, "w"));
  CHECK(read_version({{"harmonics.step", "7"}}, "w") == WeightsVersion{0, 7});
  for (const char* step : {"", "-1", "1.5", "7 ", "9223372036854775808", "many"}) {
    CAPTURE(step);
    CHECK(message_of([&] {
            read_version({{"harmonics.step", step}}, "w");
          }) == "w: the metadata 'harmonics.step' must be a number of at least 0");
  }
  for (const char* cycle : {"", "0", "2147483648"}) {
    CAPTURE(cycle);
    CHECK(message_of([&] {
            read_version({{"harmonics.step", "7"}, {"harmonics.cycle", cycle}}, "w");
          }) == "w: the metadata 'harmonics.cycle' must be a number of at least 1");
  }
}
