// Flows of several cycles over live streams: the next cycle goes on where the one before stopped, also from a checkpoint.
#include <catch2/catch.hpp>

#include <chrono>
#include <thread>

#include <fmt/core.h>

#include "engine/runtime/checkpointer.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/files_in_memory.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::testing;

namespace {

constexpr const char* kFlow = R"(harmonic two { producer x {4}; layer h {3}; layer o {4};
  cycle { x -(tanh, dropout(0.2))-> h -> o; o <-(mse)- x; }
  cycle { x -(tanh, dropout(0.2))-> h -> o; o <-(mae)- x; } })";
constexpr size_t kSamples = 203;

std::vector<float> row(size_t i) { return numbers(4, static_cast<uint32_t>(i) * 7919 + 3); }

// Samples that come once, numbered; a restored one begins where it is told.
class Live final : public Producer {
 public:
  explicit Live(bool has_positions = true) : has_positions_(has_positions) {}
  HTensor next() override {
    if (at_ == kSamples || cancelled_) return {};
    given.push_back(at_);
    return HTensor(DType::F32, Shape{4}, row(at_++).data());
  }
  std::size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.sample = Shape{4};
    info.live = true;
    return info;
  }
  bool restore(uint64_t index, const std::string& position) override {
    if (!has_positions_) return false;
    if (!given.empty() || position != (index ? "sample " + std::to_string(index) : "")) throw Error(ErrorKind::Stream, "not there: " + position);
    at_ = index;
    return true;
  }
  std::string position(uint64_t index) override { return "sample " + std::to_string(index); }
  void durable(uint64_t index) override { safe = std::max<uint64_t>(safe, index); }
  bool cancel() override { return cancelled_ = true; }

  std::vector<size_t> given;
  std::atomic<uint64_t> safe{0};

 private:
  bool has_positions_;
  size_t at_ = 0;
  std::atomic<bool> cancelled_{false};
};

RunSettings of_cycle(int cycle, int64_t batch, int64_t accumulate, int threads) {
  RunSettings s = settings(cycle == 0 ? batch : batch + 3);
  s.threads = threads;
  s.accumulate = accumulate;
  if (cycle == 0) s.steps = 7;
  return s;
}

// What the same cycles learn of files with the samples that belong to each.
std::string undisturbed(int64_t batch, int64_t accumulate) {
  auto g = graph_of(kFlow);
  const auto between = [&](size_t first, size_t last) {
    std::vector<float> rows;
    for (size_t i = first; i < last; ++i) {
      const std::vector<float> r = row(i);
      rows.insert(rows.end(), r.begin(), r.end());
    }
    bind_rows(*g, "x", {4}, rows);
  };
  const auto until = static_cast<size_t>(7 * batch * accumulate);
  for (int cycle = 0; cycle < 2; ++cycle) {
    between(cycle == 0 ? 0 : until, cycle == 0 ? until : kSamples);
    RunSettings s = of_cycle(cycle, batch, accumulate, 1);
    s.epochs = 1;
    s.shuffle = false;
    CycleRuntime(*g, cycle, s).run();
  }
  return learned_bytes(*g);
}

struct Live2 {
  std::unique_ptr<HarmonicGraph> graph = graph_of(kFlow);
  std::shared_ptr<Live> live;
  explicit Live2(bool has_positions = true) : live(std::make_shared<Live>(has_positions)) { bind_producer(*graph, "x", live); }
};

}  // namespace

TEST_CASE("a second cycle goes on with the sample after the last that the first learned") {
  const int64_t batch = GENERATE(1, 4, 9), accumulate = GENERATE(1, 3);
  for (const int threads : {1, 2}) {
    CAPTURE(batch, accumulate, threads);
    Live2 run;
    const CycleReport first = CycleRuntime(*run.graph, 0, of_cycle(0, batch, accumulate, threads)).run();
    CHECK(first.samples == 7 * batch * accumulate);
    CHECK(run.live->given.size() == static_cast<size_t>(first.samples));  // nothing was read ahead
    const CycleReport second = CycleRuntime(*run.graph, 1, of_cycle(1, batch, accumulate, threads)).run();
    CHECK(second.stopped_by == "end of streams");
    CHECK(first.samples + second.samples == kSamples);
    CHECK((learned_bytes(*run.graph) == undisturbed(batch, accumulate)));
    for (size_t i = 0; i < run.live->given.size(); ++i) REQUIRE(run.live->given[i] == i);
  }
}

TEST_CASE("runs of two cycles over a live stream go on from a checkpoint in either") {
  const std::string whole = undisturbed(4, 1);
  FilesInMemory files;
  {
    Live2 run;
    Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 1000, files);
    for (int cycle = 0; cycle < 2; ++cycle) {
      CycleRuntime runtime(*run.graph, cycle, of_cycle(cycle, 4, 1, 2));
      runtime.set_checkpoints(&writer);
      runtime.on_step(1, [&](const StepReport&) {
        while (writer.busy()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // one is written at a time, and every step's is wanted
      });
      runtime.run();
      CHECK(run.live->safe == (cycle == 0 ? 28 : kSamples));
    }
    writer.wait();
    CHECK((learned_bytes(*run.graph) == whole));
  }
  size_t of_first = 0, of_second = 0;
  for (const auto& kept : CheckpointFolder("runs", files).list()) {
    Checkpoint from = read_checkpoint(kept.path, files);
    CAPTURE(from.state.cycle, from.state.step);
    (from.state.cycle == 0 ? of_first : of_second)++;
    CHECK(from.state.not_resumable.empty());
    const int begin = static_cast<int>(from.state.cycle);
    FilesInMemory more;
    Checkpointer writer("again", CheckpointInterval{0, 5, 0}, 3, more);
    Live2 run;
    if (begin == 1) CycleRuntime(*run.graph, 0, of_cycle(0, 4, 1, 1)).declare_parameters();
    for (int cycle = begin; cycle < 2; ++cycle) {
      CycleRuntime runtime(*run.graph, cycle, of_cycle(cycle, 4, 1, 1));
      runtime.set_checkpoints(&writer);
      if (cycle == begin) runtime.resume(from);
      runtime.run();
    }
    CHECK((learned_bytes(*run.graph) == whole));
    CHECK(run.live->safe == kSamples);
  }
  CHECK(of_first >= 1);
  CHECK(of_second >= 3);
}

TEST_CASE("a cycle that ends by a metric leaves the rest of a live stream to the next") {
  Live2 run;
  RunSettings s = of_cycle(0, 4, 1, 2);
  s.steps.reset();
  s.until = {"loss<100"};
  CHECK(CycleRuntime(*run.graph, 0, s).run().samples == 4);
  CHECK(CycleRuntime(*run.graph, 1, of_cycle(1, 4, 1, 2)).run().samples == kSamples - 4);
}

TEST_CASE("a stream without positions goes on into the next cycle, and checkpoints say that they do not") {
  Live2 run(false);
  FilesInMemory files;
  Checkpointer writer("runs", CheckpointInterval{1e9, 0, 0}, 1000, files);
  for (int cycle = 0; cycle < 2; ++cycle) {
    CycleRuntime runtime(*run.graph, cycle, of_cycle(cycle, 4, 1, 1));
    runtime.set_checkpoints(&writer);
    const CycleReport report = runtime.run();
    CHECK(report.samples == (cycle == 0 ? 28 : static_cast<int64_t>(kSamples) - 28));
  }
  std::vector<std::string> notes;
  CHECK(CheckpointFolder("runs", files).newest(notes)->state.not_resumable == "stream 'x' is live");
}

TEST_CASE("cycles that cannot go on with one another's live streams say so before they begin") {
  Live2 run;
  RunSettings s = of_cycle(0, 4, 1, 1);
  s.seconds = 1;
  CHECK(message_of([&] { CycleRuntime(*run.graph, 0, s).run(); }) ==
        "cycle 1 cannot end by the clock: it may be waiting for a sample of 'x' then, and cycle 2 goes on with it\nend it with steps or until");
  auto other = graph_of(R"(harmonic two { producer x {4}; producer y {4}; layer o {4};
    cycle { x -> o; o <-(mse)- x; } cycle { x -> o; o <-(mse)- y; } })");
  bind_producer(*other, "x", std::make_shared<Live>());
  bind_producer(*other, "y", std::make_shared<Live>());
  CHECK_THAT(message_of([&] { CycleRuntime(*other, 0, of_cycle(0, 4, 1, 1)).run(); }), Catch::StartsWith("cycle 2 reads the live stream 'x' beside others than cycle 1 does"));
  // Each its own: nothing to go on with.
  auto apart = graph_of(R"(harmonic two { producer x {4}; producer y {4}; layer o {4}; layer p {4};
    cycle { x -> o; o <-(mse)- x; } cycle { y -> p; p <-(mse)- y; } })");
  bind_producer(*apart, "x", std::make_shared<Live>());
  bind_producer(*apart, "y", std::make_shared<Live>());
  RunSettings clock = of_cycle(0, 4, 1, 1);
  clock.seconds = 60;
  CHECK(CycleRuntime(*apart, 0, clock).run().samples == 28);
  CHECK(CycleRuntime(*apart, 1, of_cycle(1, 4, 1, 1)).run().samples == kSamples);
}
