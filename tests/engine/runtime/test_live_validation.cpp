// Validation on live streams, and of runs that learn from them.
#include <catch2/catch.hpp>

#include <cmath>
#include <condition_variable>
#include <future>
#include <limits>
#include <utility>

#include "engine/checkpoint/checkpointer.hpp"
#include "engine/measure/epoch_history.hpp"
#include "engine/measure/evaluate.hpp"
#include "tests/engine/runtime/live_rows.hpp"
#include "tests/files_in_memory.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using namespace std::chrono_literals;

namespace {

constexpr const char* kFlow =
    "harmonic g { producer x {4}; layer h {3}; layer o {4}; cycle { x -(tanh)-> h -> o; o <-(mse)- x; } }";

// A live stream of samples that are there already; it can continue where a checkpoint says.
class Arrived final : public LiveRows {
 public:
  explicit Arrived(uint64_t samples, uint32_t seed = 3) : samples_(samples), seed_(seed) {}
  HTensor next() override {
    if (at_ == samples_) return {};
    return sample(at_++, seed_);
  }
  bool restore(uint64_t index, const std::string&) override { return at_ = index, true; }
  std::string position(uint64_t index) override { return std::to_string(index); }

 private:
  uint64_t samples_, at_ = 0;
  uint32_t seed_;
};

// A live stream without samples, which can only be cancelled.
class Silent final : public LiveRows {
 public:
  HTensor next() override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!std::exchange(told_, true)) asked_.set_value();
    changed_.wait(lock, [this] { return cancelled_; });
    return {};
  }
  bool cancel() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
    return true;
  }
  std::future<void> asked() { return asked_.get_future(); }

 private:
  std::promise<void> asked_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false, told_ = false;
};

void validate_on(BoundGraph& g, std::shared_ptr<Producer> producer, const std::string& options) {
  g.validation_streams().bind(g.graph(), g.registry(), g.graph().find("x"), Source("x", std::move(producer)), options);
}

std::vector<float> arrived_rows(uint64_t from, uint64_t to) {
  std::vector<float> all;
  for (uint64_t i = from; i < to; ++i)
    for (const float v : live_row(i)) all.push_back(v);
  return all;
}

std::vector<int64_t> samples_validated(const CycleReport& report) {
  std::vector<int64_t> samples;
  for (const EpochReport& epoch : report.by_epoch) samples.push_back(epoch.validation ? epoch.validation->samples : -1);
  return samples;
}

}  // namespace

TEST_CASE("live validation: each evaluation takes the next samples, until there are none") {
  auto g = graph_of(kFlow);
  bind_rows(*g, "x", {4}, numbers(40));
  RunSettings s = settings(5);
  s.steps = 3;
  CycleRuntime(*g, 0, s).run();
  validate_on(*g, std::make_shared<Arrived>(8), "take=3");
  Evaluator live(*g, 0, g->validation_streams(), settings(2), Purpose::validation);
  CHECK(live.live());
  for (const auto& [from, to] : std::vector<std::pair<uint64_t, uint64_t>>{{0, 3}, {3, 6}, {6, 8}, {8, 8}}) {
    const auto next = live.run([] { return false; });
    REQUIRE(next);
    CHECK(next->samples == static_cast<int64_t>(to - from));
    if (from == to) continue;
    StreamSet same;
    same.bind(g->graph(), g->graph().find("x"),
              Source("x", std::make_shared<Rows<float>>(Shape{4}, arrived_rows(from, to))));
    CHECK(next->loss == evaluate(*g, 0, same, settings(2)).loss);
  }
}

TEST_CASE("live validation: skip= drops samples once") {
  auto g = graph_of(kFlow);
  bind_rows(*g, "x", {4}, numbers(40));
  RunSettings s = settings(5);
  s.steps = 3;
  CycleRuntime(*g, 0, s).run();
  validate_on(*g, std::make_shared<Arrived>(8), "skip=2&take=3");
  Evaluator live(*g, 0, g->validation_streams(), settings(3), Purpose::validation);
  CHECK(live.run()->samples == 3);
  CHECK(live.run()->samples == 3);
  CHECK(live.run()->samples == 0);
}

TEST_CASE("live validation: without a number of samples it is refused") {
  auto g = graph_of(kFlow);
  bind_rows(*g, "x", {4}, numbers(40));
  validate_on(*g, std::make_shared<Arrived>(8), "");
  CHECK(message_of([&] { CycleRuntime(*g, 0, settings(5)).run(); }) ==
        "validation data must be finite\n"
        "say how many samples each evaluation takes from the live stream: take=N in its address");
}

TEST_CASE("live validation: a run validates each epoch on other samples, and goes on when they end") {
  const auto trained = [](bool validates) {
    auto g = graph_of(kFlow);
    bind_rows(*g, "x", {4}, numbers(40));
    if (validates) validate_on(*g, std::make_shared<Arrived>(7), "take=3");
    RunSettings s = settings(5);
    s.epochs = 5;
    const CycleReport report = CycleRuntime(*g, 0, s).run();
    CHECK(report.epochs == 5);
    if (validates) {
      CHECK(samples_validated(report) == std::vector<int64_t>{3, 3, 1, -1, -1});
      CHECK(std::count(report.notes.begin(), report.notes.end(),
                       "the validation data ended; there is no validation from step 8 on") == 1);
    }
    return learned_bytes(*g);
  };
  CHECK(trained(true) == trained(false));
}

TEST_CASE("live validation: a run that waits for samples to validate on can be stopped") {
  auto g = graph_of(kFlow);
  bind_rows(*g, "x", {4}, numbers(40));
  const auto silent = std::make_shared<Silent>();
  validate_on(*g, silent, "take=3");
  RunSettings s = settings(5);
  s.epochs = 5;
  CycleRuntime runtime(*g, 0, s);
  std::future<void> asked = silent->asked();
  auto running = std::async(std::launch::async, [&] { return runtime.run(); });
  const bool waits = asked.wait_for(100s) == std::future_status::ready;
  runtime.stop();
  const bool ended = running.wait_for(100s) == std::future_status::ready;
  if (!ended) silent->cancel();  // ends the test
  REQUIRE(waits);
  REQUIRE(ended);
  const CycleReport report = running.get();
  CHECK(report.stopped_by == "interrupt");
  CHECK(report.steps == 2);
}

TEST_CASE("live validation: a time limit ends a run that waits for samples to validate on") {
  auto g = graph_of(kFlow);
  bind_rows(*g, "x", {4}, numbers(40));
  const auto silent = std::make_shared<Silent>();
  validate_on(*g, silent, "take=3");
  RunSettings s = settings(5);
  s.seconds = 0.2;
  CycleRuntime runtime(*g, 0, s);
  auto running = std::async(std::launch::async, [&] { return runtime.run(); });
  const bool ended = running.wait_for(100s) == std::future_status::ready;
  if (!ended) silent->cancel();
  REQUIRE(ended);
  CHECK(running.get().stopped_by == "for");
}

TEST_CASE("live validation: a run that learns from a live stream validates every few steps") {
  const auto trained = [](std::optional<int64_t> every) {
    auto g = graph_of(kFlow);
    bind_producer(*g, "x", std::make_shared<Arrived>(43));
    validate_on(*g, std::make_shared<Rows<float>>(Shape{4}, numbers(24, 5)), "");
    RunSettings s = settings(5);
    s.validate_every = every;
    const CycleReport report = CycleRuntime(*g, 0, s).run();
    CHECK(report.steps == 9);
    CHECK(report.epochs == 1);
    CHECK(report.stopped_by == "end of streams");
    CHECK(samples_validated(report) == std::vector<int64_t>(every ? 5 : 1, 6));
    for (size_t i = 0; i < report.by_epoch.size(); ++i) {
      CHECK(report.by_epoch[i].epoch == static_cast<int64_t>(i) + 1);
      CHECK(report.by_epoch[i].steps == (!every ? 9 : i < 4 ? 2 : 1));
    }
    return learned_bytes(*g);
  };
  CHECK(trained(2) == trained(std::nullopt));
}

TEST_CASE("live validation: patience counts the validations of a live stream") {
  auto g = graph_of(kFlow);
  bind_producer(*g, "x", std::make_shared<Arrived>(500));
  validate_on(*g, std::make_shared<Rows<float>>(Shape{4}, numbers(24, 5)), "");
  RunSettings s = settings(5);
  s.validate_every = 2;
  s.patience = 3;
  s.lr = 1e-30;
  const CycleReport report = CycleRuntime(*g, 0, s).run();
  CHECK(report.stopped_by == "by patience: no smaller val.loss since epoch 1");
  CHECK(report.steps == 8);
}

TEST_CASE("live validation: a resumed run has the validations of one that was never stopped") {
  const auto run = [](FilesInMemory& files, std::optional<int64_t> steps, bool resumes, std::string& learned) {
    auto g = graph_of(kFlow);
    bind_producer(*g, "x", std::make_shared<Arrived>(43));
    validate_on(*g, std::make_shared<Rows<float>>(Shape{4}, numbers(24, 5)), "");
    RunSettings s = settings(5);
    s.validate_every = 2;
    s.steps = steps;
    Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 30, files);
    CycleRuntime runtime(*g, 0, s);
    runtime.set_checkpoints(&writer);
    std::vector<std::string> notes;
    if (resumes) runtime.resume(*CheckpointFolder("runs", files).newest(notes));
    const CycleReport report = runtime.run();
    learned = learned_bytes(*g);
    return report;
  };
  FilesInMemory whole_files;
  std::string whole, resumed;
  const CycleReport all = run(whole_files, std::nullopt, false, whole);
  for (const int64_t stop : {3, 4}) {
    FilesInMemory files;
    run(files, stop, false, resumed);
    const CycleReport rest = run(files, std::nullopt, true, resumed);
    CHECK(resumed == whole);
    REQUIRE(rest.by_epoch.size() == all.by_epoch.size());
    for (size_t i = 0; i < all.by_epoch.size(); ++i) {
      CHECK(rest.by_epoch[i].epoch == all.by_epoch[i].epoch);
      CHECK(rest.by_epoch[i].step == all.by_epoch[i].step);
      CHECK(rest.by_epoch[i].validation->loss == all.by_epoch[i].validation->loss);
    }
  }
}

TEST_CASE("live validation: a loss that is not a number is larger than every other") {
  auto g = graph_of(
      "harmonic g { producer x {1}; producer y {1}; layer o {1}; cycle { x -(affine(bias=false))-> o; "
      "o <-(mse)- y; } }");
  for (const char* name : {"x", "y"}) bind_rows<float>(*g, name, {1}, std::vector<float>(4, 1));
  const auto validated = [&](const char* name, std::vector<float> values) {
    g->validation_streams().bind(g->graph(), g->registry(), g->graph().find(name),
                                 Source(name, Rows<float>(Shape{1}, std::move(values)).live()), "take=1");
  };
  validated("x", std::vector<float>(5, 1));
  validated("y", {std::numeric_limits<float>::quiet_NaN(), 9, 8, 7, 6});
  RunSettings s = settings(4);
  s.epochs = 5;
  s.patience = 2;
  s.optimizer = "sgd(lr=0)";
  const CycleReport report = CycleRuntime(*g, 0, s).run();
  CHECK(report.stopped_by == "epochs");
  CHECK(samples_validated(report) == std::vector<int64_t>(5, 1));
  CHECK(std::isnan(report.by_epoch.front().validation->loss));
}

TEST_CASE("live validation: patience counts from the best epoch, whatever epochs a long run still lists") {
  auto g = graph_of(
      "harmonic g { producer x {1}; producer y {1}; layer o {1}; cycle { x -(affine(bias=false))-> o; "
      "o <-(mse)- y; } }");
  for (const char* name : {"x", "y"}) bind_rows<float>(*g, name, {1}, std::vector<float>(4, 1));
  constexpr size_t kEpochs = EpochHistory::kEpochs + 100;
  std::vector<float> targets(kEpochs, 2000);
  for (size_t i = 3; i < kEpochs; i += 4) targets[i] = 1900 - static_cast<float>(i);  // a smaller loss each time
  const auto validated = [&](const char* name, std::vector<float> values) {
    g->validation_streams().bind(g->graph(), g->registry(), g->graph().find(name),
                                 Source(name, Rows<float>(Shape{1}, std::move(values)).live()), "take=1");
  };
  validated("x", std::vector<float>(kEpochs, 1));
  validated("y", targets);
  RunSettings s = settings(4);
  s.epochs = static_cast<int64_t>(kEpochs);
  s.patience = 5;
  s.optimizer = "sgd(lr=0)";
  CHECK(CycleRuntime(*g, 0, s).run().stopped_by == "epochs");
}
