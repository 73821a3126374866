// Streams bound to graphs: joint options, ratios, prefetch.
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <harmonics/async.hpp>

#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("streams: p samples for every q arrive in groups, and the remainder is reported") {
  auto g =
      graph_of("harmonic g { producer a; producer b 3/2 a; consumer ca; consumer cb; cycle { a -> ca; b -> cb; } }");
  bind_rows<float>(*g, "a", {1}, {0, 1, 2, 3, 4});
  bind_rows<float>(*g, "b", {1}, {0, 1, 2, 3, 4, 5, 6, 7});
  const auto ca = keep(*g, "ca"), cb = keep(*g, "cb");
  const CycleReport r = CycleRuntime(*g, 0, settings(2)).run();
  CHECK(r.samples == 2);
  CHECK(ca->values == std::vector<float>{0, 1, 2, 3});
  CHECK(cb->values == std::vector<float>{0, 1, 2, 3, 4, 5});
  REQUIRE(r.notes.size() == 2);
  CHECK(r.notes[0].find("producer 'a' had 1 sample left over") == 0);
  CHECK(r.notes[1].find("producer 'b' had 2 samples left over") == 0);
}

TEST_CASE("streams: different lengths are an error that names both, on request") {
  auto g = graph_of(
      "harmonic g { producer x {1}; producer y {1}; layer o {1}; cycle (unpaired=\"refuse\") { x -> o; o <- y; } }");
  bind_rows(*g, "x", {1}, numbers(10));
  bind_rows(*g, "y", {1}, numbers(9));
  CHECK(message_of([&] {
          CycleRuntime(*g, 0, settings(5)).run();
        }).find("stream 'y' ends after 9 samples, 'x' has 10 samples") == 0);
}

TEST_CASE("streams: labels stay with their samples when shuffled") {
  auto g = graph_of(
      "harmonic g { producer x; producer y; consumer cx; consumer cy; producer t {1}; layer o {1}; cycle (epochs 2) { "
      "x -(affine(1))-> o; x -> cx; y -> cy; o <- t; } }");
  std::vector<float> x;
  for (int i = 0; i < 500; ++i) x.push_back(static_cast<float>(i));
  bind_rows(*g, "x", {1}, x);
  bind_rows(*g, "y", {1}, x);
  bind_rows(*g, "t", {1}, x);
  const auto cx = keep(*g, "cx"), cy = keep(*g, "cy");
  RunSettings s = settings(64);
  s.optimizer = "sgd(lr=0)";
  CycleRuntime(*g, 0, s).run();
  REQUIRE(cx->samples == 1000);
  CHECK((cx->values == cy->values));
  std::vector<float> one(cx->values.begin(), cx->values.begin() + 500), two(cx->values.begin() + 500, cx->values.end());
  CHECK((one != x));
  CHECK((one != two));
  std::sort(one.begin(), one.end());
  std::sort(two.begin(), two.end());
  CHECK((one == x));
  CHECK((two == x));
}

TEST_CASE("streams: joint options take, skip and repeat must agree") {
  const auto joined = [](const std::string& options, const std::string& other) {
    auto g = graph_of(
        "harmonic g { producer x; producer y {10}; layer h {4}; layer o; cycle (epochs 2) { x -(relu)-> h -> o; o "
        "<-(cross_entropy)- y; } }");
    g->streams().bind(g->graph(), g->registry(), "x", parse_address("synth:digits?size=20" + options));
    g->streams().bind(g->graph(), g->registry(), "y", parse_address("synth:digits?size=20" + other + "#label"));
    return CycleRuntime(*g, 0, settings(8)).run();
  };
  CHECK(joined("", "").samples == 40);
  const CycleReport taken = joined("&take=5", "");
  CHECK(taken.samples == 10);
  CHECK(taken.epochs == 2);
  CHECK(joined("&skip=15&repeat=3", "").samples == 30);
  CHECK(joined("&shard=1/3", "").samples == 14);
  CHECK(message_of([&] { joined("&take=5", "&take=6"); }).find("'take=6' of 'y' disagrees with take=5") == 0);
  CHECK(message_of([&] { joined("&take=0", ""); }).find("take=0 of 'x' selects no samples") == 0);
  CHECK(message_of([&] { joined("&shard=3/3", ""); }).find("shard 3 of 3 of 'x' does not exist") == 0);
  CHECK(message_of([&] { joined("&shard=1/3", "&shard=2/3"); }).find("'shard=2/3' of 'y' disagrees with shard=1/3") ==
        0);
}

TEST_CASE("streams: joined files are cut alike, others are not changed") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("harmonics-parts-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto file = [&](const char* name, int rows) {
    std::ofstream out(folder / name);
    for (int i = 0; i < rows; ++i) out << i % 3 << "\n";
    return (folder / name).string();
  };
  const std::string x = file("x.csv", 20), all = file("y.csv", 20), half = file("half.csv", 10);
  const auto joined = [&](const std::string& cycles, const std::string& part, const std::string& other,
                          const std::string& y) {
    auto g = graph_of("harmonic g { producer x {1}; producer y {1}; layer h {1}; layer o {1}; " + cycles + " }");
    g->streams().bind(g->graph(), g->registry(), "x", parse_address("file:" + x + part));
    g->streams().bind(g->graph(), g->registry(), "y", parse_address("file:" + y + other));
    return message_of([&] { CycleRuntime(*g, 0, settings(4)).run(); });
  };
  const std::string together = "cycle (epochs 1) { x -(affine)-> h; h -(affine)-> o; o <-(mse)- y; }";
  CHECK(joined(together, "?part=0.5-1", "?part=0.50-1.0", all) == "no error");
  const std::string why =
      ", which it is joined with\nstreams that are read together need equal parts: give each the same part=";
  CHECK(joined(together, "?part=0-0.5", "?part=0.5-1", all) ==
        "'part=0.5-1' of 'y' disagrees with part=0-0.5 of 'x'" + why);
  CHECK(joined(together, "?part=0.5-1", "", all) == "'part=0-1' of 'y' disagrees with part=0.5-1 of 'x'" + why);
  CHECK(joined(together, "", "?part=0-0.5", all) == "'part=0-0.5' of 'y' disagrees with part=0-1 of 'x'" + why);
  CHECK(joined(together, "?part=0-1", "", all) == "no error");
  CHECK(joined(together, "?part=0.5-1", "", half) == "no error");  // a file that was cut beforehand
  CHECK(
      joined("cycle (epochs 1) { x -(affine)-> h; h <-(mse)- x; } cycle (epochs 1) { y -(affine)-> o; o <-(mse)- y; }",
             "?part=0-0.5", "?part=0.5-1", all) == "no error");
  std::filesystem::remove_all(folder);
}

TEST_CASE("streams: reading ahead changes nothing") {
  std::string first;
  for (const bool ahead : {false, true}) {
    auto g =
        graph_of("harmonic g { producer x {4}; producer y {1}; layer o {1}; cycle (epochs 3) { x -> o; o <- y; } }");
    std::shared_ptr<Producer> x = std::make_shared<Rows<float>>(Shape{4}, numbers(400));
    if (ahead) x = std::make_shared<AsyncProducer>(x, 7);
    bind_producer(*g, "x", x);
    bind_rows(*g, "y", {1}, numbers(100, 3));
    CycleRuntime(*g, 0, settings(16)).run();
    if (first.empty()) first = learned_bytes(*g);
    CHECK((learned_bytes(*g) == first));
  }
}
