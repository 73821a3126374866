// Results of a run: non-finite ones are reported, and a failing consumer loses no training.
#include <catch2/catch.hpp>

#include <limits>

#include "engine/checkpoint/checkpointer.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/files_in_memory.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

const std::string kInfers = "harmonic g { producer x; consumer c; layer o {2}; cycle { x -(affine)-> o; o -> c; } }";

std::string notes_of(std::vector<float> samples, const std::vector<float>& weights) {
  auto g = graph_of(kInfers);
  bind_rows<float>(*g, "x", {2}, std::move(samples));
  keep(*g, "c");
  declare(*g);
  set_weights(*g, "x.o.affine.weight", weights);
  std::string notes;
  CycleRuntime runtime(*g, 0, settings(2));
  runtime.on_note([&](const std::string& note) { notes += note + "\n"; });
  runtime.run();
  return notes;
}

// Throws at the third sample, but not an Error as the interface requires.
class Fails : public Consumer {
 public:
  void push(const HTensor&) override {
    if (++samples_ == 3) throw std::runtime_error("no paper left");
  }

 private:
  int samples_ = 0;
};

}  // namespace

TEST_CASE("results: infinite or NaN values are counted, with the first and its cause") {
  const std::vector<float> finite{1, 2, 3, 4};
  CHECK(notes_of({0, 1, 2, 3, 4, 5}, finite) == "");
  CHECK(notes_of({0, 1, 2, 3, kNan, 5, 6, 7, 8, -kInfinity}, finite) ==
        "2 of 5 results of 'c' are infinite or NaN, the first is number 3; its sample of 'x' is not finite either\n");
  CHECK(notes_of({0, 1, 2, 3, 4, 5}, {1, kNan, 1, 1}) ==
        "3 of 3 results of 'c' are infinite or NaN, the first is number 1; its samples are finite: look at the "
        "weights\n");
}

TEST_CASE("results: a consumer that throws another type leaves a checkpoint of the steps before") {
  auto g = graph_of(
      "harmonic g { producer x; producer y; consumer c; layer o {1}; cycle (epochs 3) { x -(affine)-> o; o -> c; o "
      "<-(mse)- y; } }");
  bind_rows<float>(*g, "x", {2}, numbers(16));
  bind_rows<float>(*g, "y", {1}, numbers(8));
  g->bind_consumer(g->graph().find("c"), Sink("c", std::make_shared<Fails>()));
  FilesInMemory files;
  Checkpointer writer("runs", parse_interval("1h"), 2, files);
  CycleRuntime runtime(*g, 0, settings(2));
  runtime.set_checkpoints(&writer);
  try {
    runtime.run();
    FAIL("the consumer failed");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Output);
    CHECK(std::string(e.what()).find("consumer 'c': ") == 0);
    CHECK(std::string(e.what()).find("no paper left") != std::string::npos);
  }
  std::vector<std::string> unused;
  const auto kept = CheckpointFolder("runs", files).newest(unused);
  REQUIRE(kept);
  CHECK(kept->state.step >= 2);
}
