// Batches with a non-finite loss, or one far above earlier losses, are skipped and saved. Several in a row end the run,
// or return it to the last checkpoint.
#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <limits>

#include <fmt/core.h>

#include "engine/checkpoint/checkpointer.hpp"
#include "engine/model/sealed_file.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/files_in_memory.hpp"
#include "tests/message_of.hpp"
#include "tests/temporary_folder.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr const char* kGuardedFlow =
    "harmonic g { producer x {2}; producer y {1}; layer o {1}; cycle { x -> o; o <-(mse)- y; } }";
constexpr size_t kGuardedRows = 60;

// Targets are near 0, except for the rows in `bad`.
std::unique_ptr<BoundGraph> guarded_graph(const std::vector<size_t>& bad, float target = 1000,
                                          const std::vector<size_t>& without = {}) {
  auto g = graph_of(kGuardedFlow);
  const std::vector<float> x = numbers(2 * kGuardedRows, 5), y = numbers(kGuardedRows, 6);
  std::vector<float> kept_x, kept_y;
  for (size_t i = 0; i < kGuardedRows; ++i) {
    if (std::find(without.begin(), without.end(), i) != without.end()) continue;
    kept_x.insert(kept_x.end(), {x[2 * i], x[2 * i + 1]});
    kept_y.push_back(std::find(bad.begin(), bad.end(), i) == bad.end() ? y[i] : target);
  }
  bind_rows(*g, "x", {2}, kept_x);
  bind_rows(*g, "y", {1}, kept_y);
  return g;
}

RunSettings guarded(const std::string& guard) {
  RunSettings s = settings(1);
  s.epochs = 1;
  s.shuffle = false;
  s.optimizer = "adam(lr=0.01)";
  if (!guard.empty()) s.guard = parse_loss_guard(guard);
  return s;
}

CycleReport run_guarded(BoundGraph& g, const RunSettings& s, Checkpointer* checkpoints = nullptr) {
  CycleRuntime runtime(g, 0, s);
  runtime.set_checkpoints(checkpoints);
  return runtime.run();
}

bool has_note(const CycleReport& report, const std::string& part) {
  for (const std::string& note : report.notes)
    if (note.find(part) != std::string::npos) return true;
  return false;
}

}  // namespace

TEST_CASE("loss guard: its settings, and what they may be") {
  CHECK(parse_loss_guard("") == LossGuardSettings{6, 3, false, ""});
  CHECK(parse_loss_guard("deviations=4.5, patience=10, then=checkpoint") == LossGuardSettings{4.5, 10, true, ""});
  CHECK(parse_loss_guard("deviations=4.5, then=checkpoint").str() == "deviations=4.5, patience=3, then=checkpoint");
  CHECK(message_of([] { parse_loss_guard("deviation=4"); }).find("did you mean 'deviations'?") != std::string::npos);
  CHECK(message_of([] { parse_loss_guard("then=go"); }).find("'then'") != std::string::npos);
  CHECK(message_of([] { parse_loss_guard("patience=0"); }).find("give a whole number from 1") != std::string::npos);
  CHECK(message_of([] { parse_loss_guard("patience=1.5"); }).find("give a whole number from 1") != std::string::npos);
}

TEST_CASE("loss guard: a batch far above those before is left out, as if it were not in the data") {
  auto with = guarded_graph({40}), without = guarded_graph({}, 0, {40}), unguarded = guarded_graph({40});
  const CycleReport a = run_guarded(*with, guarded("deviations=6"));
  const CycleReport b = run_guarded(*without, guarded("deviations=6"));
  CHECK(a.skipped == 1);
  CHECK(b.skipped == 0);
  CHECK(a.steps == kGuardedRows - 1);
  CHECK(a.samples == static_cast<int64_t>(kGuardedRows) - 1);
  CHECK(has_note(a, "skipped: the loss of a batch after step 40 is"));
  CHECK(learned_bytes(*with) == learned_bytes(*without));
  CHECK(run_guarded(*unguarded, guarded("")).steps == kGuardedRows);
  CHECK(learned_bytes(*unguarded) != learned_bytes(*without));
}

TEST_CASE("loss guard: it knows no deviations before twenty steps, but what is not finite") {
  auto early = guarded_graph({5});
  CHECK(run_guarded(*early, guarded("deviations=6")).skipped == 0);
  for (const float target : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto with = guarded_graph({5, 6}, target), without = guarded_graph({}, 0, {5, 6});
    CHECK(run_guarded(*with, guarded("deviations=0")).skipped == 2);
    run_guarded(*without, guarded(""));
    CHECK(learned_bytes(*with) == learned_bytes(*without));
  }
}

TEST_CASE("loss guard: batches of a group are left out alone, and the group takes others") {
  RunSettings s = guarded("deviations=6");
  s.accumulate = 2;
  s.optimizer = "sgd(lr=0.01)";
  auto with = guarded_graph({51}), without = guarded_graph({}, 0, {51});
  const CycleReport a = run_guarded(*with, s), b = run_guarded(*without, s);
  CHECK(a.skipped == 1);
  CHECK(a.steps == b.steps);
  CHECK(learned_bytes(*with) == learned_bytes(*without));
}

TEST_CASE("loss guard: after so many in a row the run ends with the weights before them") {
  auto with = guarded_graph({40, 41, 42}), until = guarded_graph({});
  RunSettings s = guarded("");
  s.steps = 40;
  run_guarded(*until, s);
  const std::string said = message_of([&] { run_guarded(*with, guarded("deviations=6, patience=3")); });
  CHECK(said.find("batch 3 in a row was skipped") != std::string::npos);
  CHECK(said.find("the weights are those after step 40") != std::string::npos);
  CHECK(learned_bytes(*with) == learned_bytes(*until));
  auto nan = guarded_graph({40}, std::numeric_limits<float>::quiet_NaN());
  CHECK(message_of([&] { run_guarded(*nan, guarded("patience=1")); }).find("sample") != std::string::npos);
}

TEST_CASE("loss guard: batches that are left out are files with which the flow can be run") {
  const EmptyFolder folder;
  RunSettings s = guarded("deviations=6");
  s.guard->folder = folder.path() + "/left/out";
  auto g = guarded_graph({40});
  const CycleReport report = run_guarded(*g, s);
  const std::string path = s.guard->folder + "/epoch-1-sample-41.safetensors";
  CHECK(has_note(report, "the batch is in " + path));
  const TensorFile file = read_sealed(path);
  REQUIRE(file.tensors.size() == 2);
  CHECK(file.tensors.at("y").data<float>()[0] == 1000);
  CHECK(file.tensors.at("x").shape() == Shape{1, 2});
  CHECK(file.tensors.at("x").data<float>()[1] == numbers(2 * kGuardedRows, 5)[81]);
  CHECK(file.metadata.at("harmonics.batch_after_step") == "40");
}

TEST_CASE("loss guard: weights and moments return to the last checkpoint, once") {
  FilesInMemory files;
  auto g = guarded_graph({30, 31, 32});
  auto until = guarded_graph({});
  RunSettings s = guarded("deviations=6, patience=2, then=checkpoint");
  CHECK(message_of([&] { run_guarded(*g, s); }).find("this run writes none") != std::string::npos);

  Checkpointer checkpoints("runs", CheckpointInterval{0, 25, 0}, 9, files);
  const std::string said = message_of([&] { run_guarded(*g, s, &checkpoints); });
  CHECK(said == "no error");  // after the return, counting starts anew

  CHECK(checkpoints.last().find("step-57") != std::string::npos);

  // Weights and moments equal those after 25 steps without these batches.
  auto before = guarded_graph({30, 31});
  std::string returned;
  {
    Checkpointer others("others", CheckpointInterval{0, 25, 0}, 9, files);
    CycleRuntime runtime(*before, 0, guarded("deviations=6, patience=2, then=checkpoint"));
    runtime.set_checkpoints(&others);
    runtime.on_note([&](const std::string& text) {
      if (text.find("restored the weights") != std::string::npos) returned = learned_bytes(*before);
    });
    runtime.run();
  }
  RunSettings first = guarded("");
  first.steps = 25;
  run_guarded(*until, first);
  CHECK(returned == learned_bytes(*until));

  auto again = guarded_graph({30, 31, 32, 33});
  Checkpointer third("third", CheckpointInterval{0, 25, 0}, 9, files);
  const std::string twice = message_of([&] { run_guarded(*again, s, &third); });
  CHECK(twice.find("in a row was skipped") != std::string::npos);
}

TEST_CASE("loss guard: a run that is resumed leaves out the same batches") {
  FilesInMemory files;
  auto whole = guarded_graph({33, 45});
  run_guarded(*whole, guarded("deviations=6"));

  auto parts = guarded_graph({33, 45});
  Checkpointer checkpoints("runs", CheckpointInterval{0, 32, 0}, 9, files);
  RunSettings first = guarded("deviations=6");
  first.steps = 38;
  run_guarded(*parts, first, &checkpoints);
  auto rest = guarded_graph({33, 45});
  CycleRuntime runtime(*rest, 0, guarded("deviations=6"));
  runtime.resume(read_checkpoint(checkpoints.last(), files));
  const CycleReport report = runtime.run();
  CHECK(report.skipped == 1);
  CHECK(report.steps == kGuardedRows - 2);
  CHECK(learned_bytes(*rest) == learned_bytes(*whole));
}
