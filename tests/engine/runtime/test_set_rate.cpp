// A learning rate that is set during a run belongs to its state: a resumed run keeps it.
#include <catch2/catch.hpp>

#include <chrono>
#include <thread>

#include "engine/checkpoint/checkpointer.hpp"
#include "engine/cycle/run_control.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/files_in_memory.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr const char* kRateFlow = R"(harmonic g { producer x {6}; producer y {3}; layer h {8}; layer o;
  cycle { x -(relu, dropout(0.3))-> h -> o; o <-(cross_entropy)- y; } })";

std::unique_ptr<BoundGraph> rate_graph() {
  auto g = graph_of(kRateFlow);
  bind_rows(*g, "x", {6}, numbers(6 * 40, 3));
  bind_rows<uint8_t>(*g, "y", {}, std::vector<uint8_t>(40, 2), 3);
  return g;
}

// The rate to set after each step; none: back to the schedule.
using Acts = std::map<int64_t, std::optional<double>>;

struct RateEnd {
  std::string weights;
  std::vector<std::string> notes;
  double rate = 0;
};

RateEnd run(FilesInMemory& files, const Acts& acts, const Checkpoint* from, bool controlled = true,
            const std::string& optimizer = "adamw(lr=0.01)", int64_t accumulate = 1) {
  auto g = rate_graph();
  RunSettings s = settings(7);
  s.epochs = 4;
  s.optimizer = optimizer;
  s.schedule = "cosine(warmup=3)";
  s.accumulate = accumulate;
  RunControl control("g");
  CycleRuntime runtime(*g, 0, s);
  Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 1000, files);
  runtime.set_checkpoints(&writer);
  if (controlled) runtime.set_control(&control);
  runtime.on_step(1, [&](const StepReport& r) {
    while (writer.busy())
      std::this_thread::sleep_for(
          std::chrono::milliseconds(1));  // only one is written at a time, and this test needs one per step
    if (const auto act = acts.find(r.step); act != acts.end()) control.set_learning_rate(act->second);
  });
  if (from) runtime.resume(*from);
  const CycleReport report = runtime.run();
  return {learned_bytes(*g), report.notes, report.learning_rate};
}

Checkpoint of_step(int64_t step, FilesInMemory& files) {
  for (const auto& c : CheckpointFolder("runs", files).list())
    if (Checkpoint read = read_checkpoint(c.path, files); read.state.step == step) return read;
  FAIL("no checkpoint of step " << step);
  return {};
}

}  // namespace

TEST_CASE("set rate: holds in a resumed run until the schedule is restored") {
  const int64_t accumulate = GENERATE(1, 2);
  const int64_t change = accumulate == 1 ? 6 : 3, back = accumulate == 1 ? 15 : 8, between = accumulate == 1 ? 9 : 5;
  const auto same = [&](FilesInMemory& files, const Acts& acts, const Checkpoint* from, bool controlled) {
    return run(files, acts, from, controlled, "adamw(lr=0.01)", accumulate);
  };
  const Acts set{{change, 0.05}}, given_back{{change, 0.05}, {back, std::nullopt}};
  FilesInMemory files, other, unset;
  const RateEnd undisturbed = same(files, set, nullptr, true), returned = same(other, given_back, nullptr, true),
                never = same(unset, {}, nullptr, true);
  CHECK(undisturbed.weights != never.weights);
  CHECK(undisturbed.weights != returned.weights);
  CHECK(undisturbed.rate == 0.05);
  CHECK(returned.rate == never.rate);
  const std::vector<std::string> note{
      "the learning rate is 0.05, as it was set by request; 'harmonics ctl PATH lr schedule' returns to the schedule"};
  for (const int64_t step : {change, between}) {
    CAPTURE(step);
    const Checkpoint from = of_step(step, files);
    CHECK(from.state.learning_rate_set == 0.05);
    for (const bool controlled : {true, false}) {
      FilesInMemory more;
      const RateEnd resumed = same(more, {}, &from, controlled);
      CHECK((resumed.weights == undisturbed.weights));
      CHECK(resumed.rate == 0.05);
      CHECK(resumed.notes == note);
      CHECK(of_step(back, more).state.learning_rate_set == 0.05);
    }
    FilesInMemory more;
    const Checkpoint before = of_step(step, other);
    CHECK((same(more, given_back, &before, true).weights == returned.weights));
  }
  FilesInMemory more;
  const Checkpoint before = of_step(change - 1, files), after = of_step(back, other);
  CHECK_FALSE(before.state.learning_rate_set);
  CHECK_FALSE(after.state.learning_rate_set);
  CHECK((same(more, set, &before, true).weights == undisturbed.weights));
  const RateEnd rest = same(more, {}, &after, false);
  CHECK((rest.weights == returned.weights));
  CHECK(rest.notes.empty());
}

TEST_CASE("set rate: the status of a resumed run says that the rate was set") {
  FilesInMemory files, more;
  run(files, {{4, 0.05}}, nullptr);
  const Checkpoint from = of_step(5, files);
  auto g = rate_graph();
  RunSettings s = settings(7);
  s.epochs = 4;
  s.optimizer = "adamw(lr=0.01)";
  s.schedule = "cosine(warmup=3)";
  RunControl control("g");
  CycleRuntime runtime(*g, 0, s);
  runtime.set_control(&control);
  runtime.resume(from);
  std::vector<bool> set;
  runtime.on_step(1, [&](const StepReport& r) {
    set.push_back(control.status().learning_rate_set);
    if (r.step == 8) control.set_learning_rate(std::nullopt);
  });
  runtime.run();
  REQUIRE(set.size() > 4);
  CHECK((set[0] && set[2]));
  CHECK_FALSE((set[3] || set.back()));
}

TEST_CASE("set rate: dropped if the resumed run has another training") {
  FilesInMemory files, more, fresh;
  run(files, {{4, 0.05}}, nullptr);
  const Checkpoint from = of_step(5, files);
  const RateEnd other = run(more, {}, &from, true, "adamw(lr=0.02)");
  REQUIRE(other.notes.size() == 2);
  CHECK(other.notes[1] == "the learning rate of 0.05 that was set by request is dropped: the training settings differ");
  CHECK(other.rate < 0.02);
  CHECK_FALSE(of_step(9, more).state.learning_rate_set);
}
