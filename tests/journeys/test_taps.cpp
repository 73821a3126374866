// Weights that training taps reach, and counts of trained, frozen and unused weights.
#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

struct Houses {
  Folder f;
  std::string x = f.write("x.csv", "1\n2\n3\n4\n"), y = f.write("y.csv", "2\n4\n6\n8\n");

  Result run(const std::string& flow, const std::string& more = "") const {
    return harmonics("run " + f.write("g.hmx", flow) + " --producer " + x + " --producer " + y + " --batch 2 " + more);
  }
};

// Returns the counts of weights in `run --json`.
std::string weights_of(const Result& r) { return json::serialize(json::parse(r.out).at("weights")); }

}  // namespace

TEST_CASE("taps: a tap that reaches no weights is an error with a remedy") {
  const Houses houses;
  const Result line = houses.run(R"hmx(harmonic g {
  producer features; producer price 1/1 features;
  layer guess;
  cycle (epochs 50) { features -> guess; guess <-(mse)- price; }
}
)hmx");
  CHECK(line.code == 78);
  CHECK(
      has(line.err, "g.hmx:4:48: error: the training tap of 'guess' reaches no weights, so nothing would be trained"));
  CHECK(has(line.err,
            "note: 'guess' has no width and no other source than the producer 'features', so it is that stream, "
            "without weights"));
  CHECK(has(line.err, "help: let its arrow learn: features -(affine)-> guess; or give the layer a width"));
  CHECK_FALSE(has(line.err, "epoch 1"));

  const Houses pictures;
  const Result back = pictures.run(R"hmx(harmonic g {
  producer image; producer price 1/1 image;
  layer body {3}; layer answer; layer picture;
  cycle (epochs 1) { image -(relu)-> body -> answer | -(sigmoid)-> picture; answer <-(mse)- price;
      picture <-(mse)- image; }
}
)hmx");
  CHECK(back.code == 78);
  CHECK(has(back.err, "the training tap of 'picture' reaches no weights"));
  CHECK(has(back.err, "let its arrow learn: image -(affine, sigmoid)-> picture;"));

  const Result fixed = houses.run(
      "harmonic g { producer features; producer price 1/1 features; layer guess; layer doubled; cycle (epochs 1) { "
      "features -(identity)-> doubled -(relu, identity)-> guess; guess <-(mse)- price; } }\n");
  CHECK(fixed.code == 0);  // an arrow between layers is trained
}

TEST_CASE("taps: following the remedy of the error trains the weights") {
  const Houses houses;
  const Result r = houses.run(
      "harmonic g { producer features; producer price 1/1 features; layer guess; cycle (epochs 300) { features "
      "-(affine)-> guess; guess <-(mse)- price; } }\n",
      "--optimizer 'adam(lr=0.1)' --json");
  REQUIRE(r.code == 0);
  CHECK(number(r.out, "loss") < 0.5);
  CHECK(weights_of(r) == R"({"trained":2,"frozen":0,"unused":0})");
}

TEST_CASE("weights: mismatches are reported before the first step, frozen and unused ones are counted separately") {
  const Houses houses;
  const std::string first =
      "harmonic g { producer x; producer y; layer h {3}; layer o; cycle (epochs 2) { x -(relu)-> h -> o; o <-(mse)- y; "
      "} }\n";
  const std::string next =
      "harmonic g { producer x; producer y; layer h {3}; layer p; cycle (epochs 2) { x -(affine(freeze=true), relu)-> "
      "h -> p; p <-(mse)- y; } }\n";
  const std::string weights = houses.f / "w.safetensors";
  const Result learned = houses.run(first, "--json --save " + weights);
  REQUIRE(learned.code == 0);
  CHECK(weights_of(learned) == R"({"trained":10,"frozen":0,"unused":0})");
  const Result r = houses.run(next, "--json --weights " + weights);
  REQUIRE(r.code == 0);
  CHECK(weights_of(r) == R"({"trained":4,"frozen":6,"unused":4})");
  CHECK(has(r.err, "trained 4 weights (6 frozen, 4 unused) on 8 samples"));
  for (const char* note : {"note: not in the file, starting fresh:", "note: in the file but not used by this graph:"}) {
    const size_t said = r.err.find(note);
    REQUIRE(said != std::string::npos);
    CHECK(said < r.err.find("epoch 1"));
    CHECK(r.err.find(note, said + 1) == std::string::npos);
  }
  for (const std::string& wrong : SchemaCheck::run(schema("run"), json::parse(r.out))) FAIL_CHECK(wrong);
}

TEST_CASE("weights: missing ones of a second cycle are reported before the first, and none of them is called unused") {
  const Houses houses;
  const std::string head = "harmonic g { producer x; producer y; layer h {3}; layer o; layer p; ";
  const std::string one = "cycle (epochs 1) { x -(relu)-> h -> o; o <-(mse)- y; } ",
                    two = "cycle (epochs 1) { x -(tanh)-> p; p <-(mse)- y; } ";
  const std::string three = "cycle (epochs 1) { x -(affine(name=\"other\"))-> p; p <-(mse)- y; } ";
  const std::string weights = houses.f / "w.safetensors";
  REQUIRE(houses
              .run("harmonic g { producer x; producer y; layer h {3}; layer o; layer p {1}; " + one + two + "}\n",
                   "--quiet --save " + weights)
              .code == 0);
  CHECK_FALSE(
      has(houses
              .run("harmonic g { producer x; producer y; layer h {3}; layer o; layer p {1}; " + one + two + "}\n",
                   "--weights " + weights)
              .err,
          "note: in the file"));
  const Result r = houses.run(head + one + three + "}\n", "--weights " + weights);
  REQUIRE(r.code == 0);
  const size_t said = r.err.find("not in the file, starting fresh:");
  REQUIRE(said != std::string::npos);
  CHECK(has(r.err.substr(said, 200), "other.weight"));
  CHECK(said < r.err.find("epoch 1"));
}
