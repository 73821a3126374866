// Weights, moments and statistics stay finite: a step that makes them non-finite is undone, wherever it occurs in a
// run.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include <fmt/core.h>

#include "engine/checkpoint/checkpointer.hpp"
#include "engine/cycle/last_good.hpp"
#include "engine/cycle/snapshot.hpp"
#include "engine/tensor/finite.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/files_in_memory.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr const char* kFiniteFlow =
    "harmonic g { producer x {2}; producer y {1}; layer o {1}; cycle { x -> o; o <-(mae)- y; } }";
constexpr size_t kRows = 12;

// The first feature is 0 in every row except `bad`. That row has a finite loss, but its gradient makes a weight
// non-finite.
std::vector<float> rows(size_t bad) {
  std::vector<float> x = numbers(2 * kRows, 5);
  for (size_t i = 0; i < kRows; ++i) x[2 * i] = i == bad ? 1e38f : 0;
  return x;
}

std::unique_ptr<BoundGraph> spoiled_graph(size_t bad, const char* flow = kFiniteFlow, bool live = false) {
  auto g = graph_of(flow);
  auto x = std::make_shared<Rows<float>>(Shape{2}, rows(bad));
  auto y = std::make_shared<Rows<float>>(Shape{1}, numbers(kRows, 6));
  bind_producer(*g, "x", live ? x->live() : x);
  bind_producer(*g, "y", live ? y->live() : y);
  return g;
}

RunSettings one_by_one(const std::string& optimizer = "sgd(lr=10)") {
  RunSettings s = settings(1);
  s.epochs = 1;
  s.shuffle = false;
  s.optimizer = optimizer;
  return s;
}

// Returns weights, statistics and moments, byte for byte.
std::map<std::string, std::string> bytes_of(const TensorFile& file) {
  std::map<std::string, std::string> all;
  for (const auto& [name, t] : file.tensors)
    if (name.rfind("run/", 0) != 0)
      all[name] = std::string(static_cast<const char*>(t.bytes()), engine::type_of(t).bytes());
  return all;
}
std::map<std::string, std::string> bytes_of(const BoundGraph& g) {
  TensorFile file;
  g.snapshot(file);
  return bytes_of(file);
}

// Whether weights are copied after every step or only at the beginning. This determines how many steps are repeated.
enum class Copies { every_step, first };

struct Failed {
  std::string said;
  CycleReport report;
  std::map<std::string, std::string> left;
};

Failed failed(BoundGraph& g, const RunSettings& s, Copies copies, Checkpointer* checkpoints = nullptr) {
  CycleRuntime runtime(g, 0, s);
  double seconds = 0;
  runtime.set_clock([&] { return copies == Copies::every_step ? seconds += 1e4 : seconds; });
  runtime.set_checkpoints(checkpoints);
  const std::string said = message_of([&] { runtime.run(); });
  return {said, runtime.report(), bytes_of(g)};
}

// Returns the contents of a run that stops after this many steps.
std::map<std::string, std::string> after(int64_t steps, size_t bad, RunSettings s, const char* flow = kFiniteFlow) {
  auto g = spoiled_graph(bad, flow);
  s.steps = steps;
  CycleRuntime(*g, 0, s).run();
  return bytes_of(*g);
}

bool says(const Failed& f, const std::string& text) { return f.said.find(text) != std::string::npos; }

}  // namespace

TEST_CASE("finite: the first bad number of every float type is found") {
  std::vector<float> v(1000, std::numeric_limits<float>::max());
  CHECK(first_not_finite(DType::F32, v.data(), 1000) == -1);
  for (const int64_t at : {0, 255, 256, 700, 999}) {
    std::vector<float> w = v;
    w[static_cast<size_t>(at)] = at % 2 ? -INFINITY : NAN;
    CHECK(first_not_finite(DType::F32, w.data(), 1000) == at);
    CHECK(first_not_finite(DType::F32, w.data(), at) == -1);
  }
  const double d[] = {1, std::numeric_limits<double>::max(), -INFINITY};
  CHECK(first_not_finite(DType::F64, d, 3) == 2);
  CHECK(first_not_finite(DType::F64, d, 2) == -1);
  const uint16_t bits[] = {0x0000, 0x7bff, 0x8001, 0x7f7f, 0xff80};
  CHECK(first_not_finite(DType::F16, bits, 5) == 3);
  CHECK(first_not_finite(DType::BF16, bits, 5) == 4);
  CHECK(first_not_finite(DType::I32, v.data(), 1000) == -1);
}

TEST_CASE("finite: a last step that makes weights infinite is an error and is undone") {
  for (const Copies copies : {Copies::first, Copies::every_step})
    for (const char* device : {"cpu", "reference"})
      for (const int threads : {1, 2}) {
        CAPTURE(device, threads, copies == Copies::first);
        RunSettings s = one_by_one();
        s.device = device;
        s.threads = threads;
        auto g = spoiled_graph(kRows - 1);
        const Failed f = failed(*g, s, copies);
        INFO(f.said);
        CHECK(f.said.find("step 12 had a finite loss but made 'x.o.affine.weight' infinite\nnote: the weights are "
                          "those after step 11, all finite") == 0);
        CHECK(f.report.steps == 11);
        CHECK(f.report.samples == 11);
        CHECK(f.report.stopped_by == "not finite");
        CHECK((f.left == after(11, kRows - 1, s)));
      }
}

TEST_CASE("finite: an earlier step that makes weights infinite is undone when the loss reveals it") {
  auto g = spoiled_graph(6);
  const Failed f = failed(*g, one_by_one(), Copies::first);
  INFO(f.said);
  CHECK(says(f, "the loss is nan at step 8 (epoch 1); first not finite: layer 'o', sample 0 of the batch"));
  CHECK(says(f,
             "note: step 7 had a finite loss but made 'x.o.affine.weight' infinite; the weights are those after step "
             "6, all finite"));
  CHECK(f.report.steps == 6);
  CHECK((f.left == after(6, 6, one_by_one())));
}

TEST_CASE("finite: moments, statistics, groups, dropout and branches are bitwise those before the bad step") {
  const char* const kNorm = R"(harmonic g { producer x {2}; producer y {1}; layer h {4}; layer o {1};
    cycle { x -(affine, norm(kind="batch"), tanh)-> h -> o; o <-(mae)- y; } })";
  const char* const kDropout =
      "harmonic g { producer x {2}; producer y {1}; layer h {4}; layer o {1}; cycle { x -> h -(dropout(0.4), "
      "affine(1))-> o; o <-(mae)- y; } }";
  const char* const kBranch = R"(harmonic g { producer x {2}; producer y {1}; layer h {4}; layer o {1};
    cycle { x -> h; if loss < 1000 { h -(affine(1, name="low"))-> o; } else { h -(affine(1,
      name="high"))-> o; } o <-(mae)- y; } })";
  struct Case {
    const char* flow;
    RunSettings run;
    int64_t good;
  };
  std::vector<Case> cases;
  cases.push_back({kFiniteFlow, one_by_one("adamw(lr=0.1)"), 11});  // the second moment overflows
  cases.push_back({kFiniteFlow, one_by_one("rmsprop(lr=0.1, momentum=0.9)"), 11});
  cases.push_back({kDropout, one_by_one("sgd(lr=10, momentum=0.5)"), 11});
  cases.push_back({kBranch, one_by_one("sgd(lr=10)"), 11});
  cases.push_back({kFiniteFlow, one_by_one("sgd(lr=30)"), 5});
  cases.back().run.accumulate = 2;
  cases.push_back({kNorm, one_by_one("adamw(lr=0.1)"), 2});  // running statistics
  cases.back().run.batch = 2;
  cases.back().run.accumulate = 2;
  for (const Case& c : cases)
    for (const Copies copies : {Copies::first, Copies::every_step}) {
      auto g = spoiled_graph(kRows - 1, c.flow);
      const Failed f = failed(*g, c.run, copies);
      CAPTURE(c.flow, *c.run.optimizer, copies == Copies::first, f.said);
      CHECK(says(f, fmt::format("the weights are those after step {}, all finite", c.good)));
      CHECK(f.report.steps == c.good);
      CHECK((f.left == after(c.good, kRows - 1, c.run, c.flow)));
    }
}

TEST_CASE("finite: a failed run's checkpoint holds its last good step and can be resumed") {
  for (const Copies copies : {Copies::first, Copies::every_step})
    for (const size_t bad : {size_t{6}, kRows - 1}) {
      CAPTURE(bad, copies == Copies::first);
      FilesInMemory files;
      Checkpointer writer("runs", CheckpointInterval{0, 4, 0}, 1000, files);
      auto g = spoiled_graph(bad);
      const Failed f = failed(*g, one_by_one(), copies, &writer);
      writer.wait();
      CHECK(f.report.no_checkpoint.empty());
      for (const auto& entry : writer.folder().list())
        for (const auto& [name, t] : read_checkpoint(entry.path, files).file.tensors) {
          CAPTURE(entry.path, name);
          CHECK(first_not_finite(t.dtype(), t.bytes(), t.size()) == -1);
        }
      const Checkpoint last = read_checkpoint(writer.last(), files);
      CHECK(last.state.step == static_cast<int64_t>(bad));
      CHECK(g->version() == WeightsVersion{0, static_cast<int64_t>(bad)});
      CHECK((bytes_of(last.file) == f.left));
      auto again = spoiled_graph(kRows);  // the bad row is removed
      CycleRuntime runtime(*again, 0, one_by_one());
      runtime.resume(last);
      CHECK(runtime.run().steps == kRows);
    }
}

TEST_CASE("finite: a non-finite loss leaves a checkpoint of the step before") {
  FilesInMemory files;
  Checkpointer writer("runs", CheckpointInterval{1e9, 0, 0}, 3, files);
  auto g = graph_of(kFiniteFlow);
  std::vector<float> x = rows(kRows);
  x[2 * 7 + 1] = NAN;
  bind_rows(*g, "x", {2}, x);
  bind_rows(*g, "y", {1}, numbers(kRows, 6));
  RunSettings s = one_by_one("sgd(lr=0.1)");
  s.accumulate = 3;
  const Failed f = failed(*g, s, Copies::first, &writer);
  INFO(f.said);
  CHECK(says(f,
             "the loss is nan at step 3 (epoch 1); first not finite: producer 'x', sample 0 of the batch\nnote: the "
             "weights are those after step 2, all finite"));
  const Checkpoint last = read_checkpoint(writer.last(), files);
  CHECK(last.state.step == 2);
  CHECK(last.state.batches == 6);
  CHECK(last.state.samples == 6);
  CHECK((bytes_of(last.file) == f.left));
}

TEST_CASE("finite: on a live stream the copy is kept and its step is reported") {
  auto g = spoiled_graph(6, kFiniteFlow, true);
  FilesInMemory files;
  Checkpointer writer("runs", CheckpointInterval{1e9, 0, 0}, 3, files);
  const Failed late = failed(*g, one_by_one(), Copies::every_step, &writer);
  INFO(late.said);
  CHECK(says(late, "a step after 6 and up to 7 had a finite loss but made 'x.o.affine.weight' infinite"));
  CHECK(says(
      late,
      "the weights are those after step 6, all finite; the later ones cannot be repeated: live streams are read once"));
  CHECK(late.report.steps == 6);
  CHECK(g->version() == WeightsVersion{0, 6});
  CHECK((late.left == after(6, 6, one_by_one())));
  CHECK(read_checkpoint(writer.last(), files).state.step == 6);
}

TEST_CASE("finite: weights that are not finite at the start are reported as such") {
  auto g = spoiled_graph(kRows);
  declare(*g);
  set_weights(*g, "x.o.affine.bias", {INFINITY});
  const Failed f = failed(*g, one_by_one("sgd(lr=0.1)"), Copies::first);
  INFO(f.said);
  CHECK(says(f, "the loss is inf at step 1 (epoch 1)"));
  CHECK(says(f, "note: the weights are those after step 0; 'x.o.affine.bias' was not finite in the graph already"));
  CHECK_FALSE(says(f, "infinite"));

  auto loaded = spoiled_graph(kRows);
  loaded->load_weights(g->weights(), "bad.safetensors");
  CycleRuntime runtime(*loaded, 0, one_by_one());
  runtime.set_origin("bad.safetensors");
  CHECK(message_of([&] { runtime.run(); }).find("'x.o.affine.bias' was not finite in bad.safetensors already") !=
        std::string::npos);
}

TEST_CASE("finite: snapshots never contain non-finite weights") {
  auto g = spoiled_graph(6);
  CycleRuntime runtime(*g, 0, one_by_one());
  std::shared_ptr<Snapshots> snapshots;
  runtime.keep_snapshots([&](const std::shared_ptr<Snapshots>& s) { snapshots = s; });
  runtime.on_step(1, [&](const StepReport&) { snapshots->settle(); });
  CHECK(message_of([&] { runtime.run(); }) != "no error");
  const auto newest = snapshots->newest();
  CHECK(newest->version().step == 6);
  for (const auto& [name, t] : newest->weights().all()) CHECK(is_finite(t));
}
