// Flows of several cycles over live streams: each cycle continues where the previous one stopped, also after resuming
// from a checkpoint.
#include <catch2/catch.hpp>

#include <chrono>
#include <thread>

#include <fmt/core.h>

#include "engine/base/address.hpp"
#include "engine/checkpoint/checkpointer.hpp"
#include "engine/plugin/pending_items.hpp"
#include "tests/engine/runtime/live_rows.hpp"
#include "tests/files_in_memory.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr const char* kTwoCyclesFlow = R"(harmonic two { producer x {4}; layer h {3}; layer o {4};
  cycle { x -(tanh, dropout(0.2))-> h -> o; o <-(mse)- x; }
  cycle { x -(tanh, dropout(0.2))-> h -> o; o <-(mae)- x; } })";
constexpr size_t kSamples = 203;

// A live stream of numbered samples. A restored one starts at the given position.
class LiveSamples final : public LiveRows {
 public:
  explicit LiveSamples(bool has_positions = true) : has_positions_(has_positions) {}
  HTensor next() override {
    if (at_ == kSamples || cancelled_) return {};
    given.push_back(at_);
    return sample(at_++);
  }
  bool restore(uint64_t index, const std::string& position) override {
    if (!has_positions_) return false;
    if (!given.empty() || position != (index ? "sample " + std::to_string(index) : ""))
      throw Error(ErrorKind::Stream, "not there: " + position);
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

// Returns the weights that the same cycles learn from files with their respective samples.
std::string undisturbed(int64_t batch, int64_t accumulate) {
  auto g = graph_of(kTwoCyclesFlow);
  const auto between = [&](size_t first, size_t last) {
    std::vector<float> rows;
    for (size_t i = first; i < last; ++i) {
      const std::vector<float> r = live_row(i);
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

// Binds a producer as if it came from an address with these options, which configure its edge.
void bind_address(BoundGraph& g, const std::string& name, const std::shared_ptr<Producer>& producer,
                  const std::string& options) {
  hx_registry pending;
  hx_registration registration{sizeof(hx_registration), harmonics_api(), &pending};
  const std::string scheme = "given_" + name;
  reinterpret_cast<FunctionRegistry&>(registration)
      .register_producer(scheme, [producer](const std::string&, const Arguments&) { return producer; });
  commit_pending(pending, g.registry());
  g.streams().bind(g.graph(), g.registry(), name, parse_address(scheme + ":" + name + "?" + options));
}

struct Live2 {
  std::unique_ptr<BoundGraph> graph = graph_of(kTwoCyclesFlow);
  std::shared_ptr<LiveSamples> live;
  explicit Live2(bool has_positions = true) : live(std::make_shared<LiveSamples>(has_positions)) {
    bind_producer(*graph, "x", live);
  }
  explicit Live2(const std::string& options) : live(std::make_shared<LiveSamples>()) {
    if (options.empty())
      bind_producer(*graph, "x", live);
    else
      bind_address(*graph, "x", live, options);
  }
};

// Edges that hold all samples, so that none is late.
const std::string kHolding[] = {"", "edge=block&hold=64", "late=1m", "edge=drop_oldest&hold=1M&late=1m"};

// One number per sample, numbered by its sender with gaps. Most samples arrive once `hurry` is set.
class Counted final : public Producer {
 public:
  Counted(uint64_t most, uint64_t lacks_every, const std::atomic<bool>& hurry)
      : most_(most), lacks_every_(lacks_every), hurry_(hurry) {}
  HTensor next() override {
    std::this_thread::sleep_for(at_ > 300 && !hurry_ ? std::chrono::microseconds(2000) : std::chrono::microseconds(20));
    if (at_ > 0 && at_ % lacks_every_ == 0) ++at_;
    if (at_ >= most_) return {};
    const auto value = static_cast<float>(at_++);
    return HTensor(DType::F32, Shape{1}, &value);
  }
  std::size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.sample = Shape{1};
    info.live = true;
    return info;
  }
  bool numbers(uint64_t n, SampleNumber* to) override {
    if (n > 0) *to = {at_ - 1, 1};
    return true;
  }
  bool cancel() override { return true; }

 private:
  uint64_t most_, lacks_every_, at_ = 0;
  const std::atomic<bool>& hurry_;
};

}  // namespace

TEST_CASE("live cycles: the second continues with the sample after the first's last one") {
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

TEST_CASE("live cycles: the second continues with the samples queued on an edge") {
  const std::string options = GENERATE(from_range(std::begin(kHolding), std::end(kHolding)));
  const int64_t batch = GENERATE(1, 9);
  CAPTURE(options, batch);
  Live2 run(options);
  const CycleReport first = CycleRuntime(*run.graph, 0, of_cycle(0, batch, 1, 2)).run();
  const CycleReport second = CycleRuntime(*run.graph, 1, of_cycle(1, batch, 1, 1)).run();
  CHECK(first.samples == 7 * batch);
  CHECK(second.samples == static_cast<int64_t>(kSamples) - 7 * batch);
  CHECK((learned_bytes(*run.graph) == undisturbed(batch, 1)));
}

TEST_CASE("live cycles: edges that drop samples and late= keep pairs together") {
  const std::string options = GENERATE(as<std::string>{}, "edge=drop_oldest&hold=40", "edge=latest",
                                       "edge=block&hold=40", "late=20ms", "late=20ms&edge=latest&unpaired=drop");
  CAPTURE(options);
  constexpr uint64_t kMost = 3000;
  std::atomic<bool> hurry{false};
  auto g = graph_of(R"(harmonic pairs { producer x {1}; producer y {1}; consumer cx; consumer cy;
    cycle (steps 3) { x -> cx; y -> cy; } cycle { x -> cx; y -> cy; } })");
  bind_address(*g, "x", std::make_shared<Counted>(kMost, 7, hurry), options);
  bind_address(*g, "y", std::make_shared<Counted>(kMost, 11, hurry), "edge=block&hold=400");
  const auto xs = keep(*g, "cx"), ys = keep(*g, "cy");
  RunSettings s = settings(5);
  const CycleReport first = CycleRuntime(*g, 0, s).run();
  CHECK(first.samples == 15);
  hurry = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // samples arrive meanwhile
  s.batch = 13;
  const CycleReport second = CycleRuntime(*g, 1, s).run();
  CHECK(second.stopped_by == "end of streams");
  CHECK((xs->values == ys->values));
  CHECK(std::is_sorted(xs->values.begin(), xs->values.end()));
  CHECK(std::adjacent_find(xs->values.begin(), xs->values.end()) == xs->values.end());
  CHECK(xs->values.size() == static_cast<size_t>(first.samples + second.samples));
  const auto whole = [](uint64_t i) { return (i == 0 || i % 7 != 0) && (i == 0 || i % 11 != 0); };
  size_t pairs = 0;
  for (uint64_t i = 0; i < kMost; ++i) pairs += whole(i);
  if (options.starts_with("edge=block")) CHECK(xs->values.size() == pairs);
  // Notes count from the start of the run, over both cycles.
  std::string told;
  for (const std::string& note : second.notes) told += note + "\n";
  CAPTURE(told);
  CHECK(told.find("samples of 'y': ") != std::string::npos);
  if (options.find("edge=latest") != std::string::npos || options.find("drop_oldest") != std::string::npos)
    CHECK(told.find("samples of 'x': ") != std::string::npos);
}

TEST_CASE("live cycles: a stream that ends in the first leaves no samples to the second") {
  const std::string options = GENERATE(as<std::string>{}, "", "edge=block&hold=64");
  CAPTURE(options);
  Live2 run(options);
  RunSettings s = of_cycle(0, 9, 1, 1);
  s.steps = 100;
  CHECK(CycleRuntime(*run.graph, 0, s).run().samples == static_cast<int64_t>(kSamples));
  const CycleReport second = CycleRuntime(*run.graph, 1, of_cycle(1, 9, 1, 1)).run();
  CHECK(second.samples == 0);
  CHECK(second.stopped_by == "end of streams");
}

TEST_CASE("live cycles: a checkpoint in either cycle is resumed") {
  const std::string options = GENERATE(from_range(std::begin(kHolding), std::end(kHolding)));
  CAPTURE(options);
  const std::string whole = undisturbed(4, 1);
  FilesInMemory files;
  {
    Live2 run(options);
    Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 1000, files);
    for (int cycle = 0; cycle < 2; ++cycle) {
      CycleRuntime runtime(*run.graph, cycle, of_cycle(cycle, 4, 1, 2));
      runtime.set_checkpoints(&writer);
      runtime.on_step(1, [&](const StepReport&) {
        while (writer.busy())
          std::this_thread::sleep_for(
              std::chrono::milliseconds(1));  // only one is written at a time, and this test needs one per step
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
    Live2 run(options);
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

TEST_CASE("live cycles: a cycle that ends by a metric leaves the remaining samples to the next") {
  Live2 run;
  RunSettings s = of_cycle(0, 4, 1, 2);
  s.steps.reset();
  s.until = {"loss<100"};
  CHECK(CycleRuntime(*run.graph, 0, s).run().samples == 4);
  CHECK(CycleRuntime(*run.graph, 1, of_cycle(1, 4, 1, 2)).run().samples == kSamples - 4);
}

TEST_CASE("live cycles: a stream without positions continues, and checkpoints say it cannot be resumed") {
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

TEST_CASE("live cycles: cycles that cannot share live streams are refused before they begin") {
  Live2 run;
  RunSettings s = of_cycle(0, 4, 1, 1);
  s.seconds = 1;
  CHECK(message_of([&] { CycleRuntime(*run.graph, 0, s).run(); }) ==
        "cycle 1 cannot end by a time limit, because cycle 2 continues the live stream 'x'\nend "
        "it with steps or until");
  auto other = graph_of(R"(harmonic two { producer x {4}; producer y {4}; layer o {4};
    cycle { x -> o; o <-(mse)- x; } cycle { x -> o; o <-(mse)- y; } })");
  bind_producer(*other, "x", std::make_shared<LiveSamples>());
  bind_producer(*other, "y", std::make_shared<LiveSamples>());
  CHECK_THAT(message_of([&] { CycleRuntime(*other, 0, of_cycle(0, 4, 1, 1)).run(); }),
             Catch::StartsWith("cycles 1 and 2 share the live stream 'x' but read different producers"));
  // Each cycle has its own streams, so nothing is shared.
  auto apart = graph_of(R"(harmonic two { producer x {4}; producer y {4}; layer o {4}; layer p {4};
    cycle { x -> o; o <-(mse)- x; } cycle { y -> p; p <-(mse)- y; } })");
  bind_producer(*apart, "x", std::make_shared<LiveSamples>());
  bind_producer(*apart, "y", std::make_shared<LiveSamples>());
  RunSettings clock = of_cycle(0, 4, 1, 1);
  clock.seconds = 60;
  CHECK(CycleRuntime(*apart, 0, clock).run().samples == 28);
  CHECK(CycleRuntime(*apart, 1, of_cycle(1, 4, 1, 1)).run().samples == kSamples);
}
