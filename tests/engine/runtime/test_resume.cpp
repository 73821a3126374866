// A run that is stopped anywhere and resumed with other numbers of threads and prefetched samples ends bitwise equal to
// an uninterrupted run.
#include <catch2/catch.hpp>

#include <chrono>
#include <cmath>
#include <future>
#include <random>

#include <fmt/core.h>

#include <harmonics/async.hpp>

#include "engine/checkpoint/checkpointer.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/engine/runtime/resumed_runs.hpp"
#include "tests/files_in_memory.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using namespace harmonics::engine::testing::resuming;

TEST_CASE("resume: a run stopped anywhere ends bitwise equal") {
  std::mt19937 random(41);
  size_t mid_epoch = 0, pieces = 0;
  for (int round = 0; round < 40; ++round) {
    const Setup setup = random_setup(random);
    CAPTURE(round, text_of(setup));
    auto g = resumed_graph(setup, 0);
    const End undisturbed = end_of(*g, CycleRuntime(*g, 0, setup.run).run());

    FilesInMemory files;
    Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 1000, files);
    auto kept = resumed_graph(setup, 3);
    CycleRuntime runtime(*kept, 0, setup.run);
    runtime.set_checkpoints(&writer);
    expect_same(end_of(*kept, runtime.run()), undisturbed);  // writing checkpoints changes nothing
    writer.wait();

    const auto all = writer.folder().list();
    REQUIRE(!all.empty());
    for (int stop = 0; stop < 2; ++stop) {
      const Checkpoint from = read_checkpoint(all[random() % all.size()].path, files);
      CAPTURE(from.path, from.state.epoch, from.state.index);
      mid_epoch += from.state.index > 0;
      ++pieces;
      FilesInMemory more;
      expect_same(resumed(setup, from, 1 + static_cast<int>(random() % 2), random() % 20, &more), undisturbed);
      const auto second = CheckpointFolder("again", more).list();  // stops the resumed run again
      if (second.empty()) continue;
      expect_same(resumed(setup, read_checkpoint(second[random() % second.size()].path, more), 2, random() % 5),
                  undisturbed);
    }
  }
  CHECK(mid_epoch * 3 > pieces);
}

TEST_CASE("resume: the last checkpoint is the end of the run, and more steps may follow") {
  Setup setup;
  setup.run = settings(4);
  setup.run.epochs = 2;
  FilesInMemory files, fresh;
  const auto run = [&](int64_t epochs, const Checkpoint* from, FilesInMemory& files) {
    auto g = resumed_graph(setup, 0);
    RunSettings s = setup.run;
    s.epochs = epochs;
    Checkpointer writer("runs", CheckpointInterval{0, 5, 0}, 3, files);
    CycleRuntime runtime(*g, 0, s);
    runtime.set_checkpoints(&writer);
    if (from) runtime.resume(*from);
    CycleReport report = runtime.run();
    CHECK(g->weights().metadata.at("harmonics.step") == std::to_string(report.steps));
    return end_of(*g, std::move(report));
  };
  const End two = run(2, nullptr, files);
  std::vector<std::string> notes;
  const auto last = CheckpointFolder("runs", files).newest(notes);
  REQUIRE(last);
  CHECK(last->state.step == 16);
  CHECK(last->state.index == 30);
  expect_same(run(2, &*last, files), two);
  const End longer = run(5, &*last, files);
  expect_same(longer, run(5, nullptr, fresh));
}

TEST_CASE("stop: finishes the step with all of its batches, and the resumed run is equal") {
  Setup setup;
  setup.flow = kFlows[1];
  setup.run = settings(3);
  setup.run.epochs = 3;
  setup.run.accumulate = 4;
  auto whole = resumed_graph(setup, 0);
  const End undisturbed = end_of(*whole, CycleRuntime(*whole, 0, setup.run).run());
  for (const int calls : {2, 5, 7}) {
    FilesInMemory files;
    auto g = resumed_graph(setup, 0);
    CycleRuntime runtime(*g, 0, setup.run);
    Checkpointer writer("runs", CheckpointInterval{1e9, 0, 0}, 3, files);
    runtime.set_checkpoints(&writer);
    double seconds = 0;
    runtime.set_clock([&] {
      if (++seconds == calls) runtime.stop();
      return seconds;
    });
    const CycleReport stopped = runtime.run();
    CHECK(stopped.stopped_by == "interrupt");
    CHECK(stopped.samples < 90);
    std::vector<std::string> notes;
    const auto from = CheckpointFolder("runs", files).newest(notes);
    REQUIRE(from);
    CHECK(from->state.step == stopped.steps);
    CHECK(from->state.samples == stopped.samples);
    expect_same(resumed(setup, *from, 2, 4), undisturbed);
  }
}

TEST_CASE("rates: the time of the validation after the last step does not count") {
  Setup setup;
  setup.validated = true;
  setup.run = settings(6);
  setup.run.epochs = 1;
  auto g = resumed_graph(setup, 0);
  CycleRuntime runtime(*g, 0, setup.run);
  double seconds = 0;
  runtime.set_clock([&] { return seconds += 1e-9; });  // less than any validation takes
  const CycleReport report = runtime.run();
  REQUIRE(report.by_epoch.back().validation);
  CHECK(report.samples_per_second == Approx(static_cast<double>(report.samples) / report.seconds));
}

TEST_CASE("stop: at any moment the run is cut and reported so, with a checkpoint that continues it") {
  Setup setup;
  setup.validated = true;
  setup.run = settings(6);
  setup.run.epochs = 2;
  setup.run.accumulate = 2;
  auto undisturbed = resumed_graph(setup, 0);
  const End whole = end_of(*undisturbed, CycleRuntime(*undisturbed, 0, setup.run).run());
  int cut = 0;
  for (int moment = 1;; ++moment) {
    CAPTURE(moment);
    auto g = resumed_graph(setup, 0);
    FilesInMemory files;
    Checkpointer writer("runs", CheckpointInterval{1e9, 0, 0}, 3, files);
    CycleRuntime runtime(*g, 0, setup.run);
    runtime.set_checkpoints(&writer);
    int looks = 0;
    runtime.set_clock([&] {
      if (++looks == moment) runtime.stop();
      return static_cast<double>(looks);
    });
    const CycleReport report = runtime.run();
    if (looks < moment) break;
    ++cut;
    CHECK(report.stopped_by == "interrupt");
    CHECK_FALSE((report.by_epoch.size() == 2 && report.by_epoch.back().validation));
    std::vector<std::string> notes;
    const auto from = CheckpointFolder("runs", files).newest(notes);
    REQUIRE(from);
    expect_same(resumed(setup, *from, 1, 0), whole);
  }
  CHECK(cut > 3);
}

TEST_CASE("stop: after the last validation the run is complete") {
  Setup setup;
  setup.validated = true;
  setup.run = settings(6);
  setup.run.epochs = 2;
  auto undisturbed = resumed_graph(setup, 0), g = resumed_graph(setup, 0);
  const End whole = end_of(*undisturbed, CycleRuntime(*undisturbed, 0, setup.run).run());
  CycleRuntime runtime(*g, 0, setup.run);
  runtime.on_epoch([&](const EpochReport& e, const Progress&) {
    if (e.epoch == 2) runtime.stop();
  });
  expect_same(end_of(*g, runtime.run()), whole);
  CHECK(runtime.asked_to_stop());
}

namespace {

// Returns a graph whose validation calls `on_sample` before each sample, with the count over all validations.
std::unique_ptr<BoundGraph> observed_graph(Setup setup, std::function<void(int)> on_sample) {
  setup.validated = false;  // bound here
  auto g = resumed_graph(setup, 0);
  const std::vector<float> x = numbers(6 * 14, 9);
  auto rows = std::make_shared<Rows<float>>(Shape{6}, x);
  rows->on_sample = [on_sample, n = std::make_shared<int>(0)](size_t) { on_sample(++*n); };
  StreamSet& streams = g->validation_streams();
  streams.bind(g->graph(), g->graph().find("x"), Source("x", rows));
  streams.bind(g->graph(), g->graph().find("y"), Source("y", std::make_shared<Rows<uint8_t>>(Shape{}, labels(x), 3)));
  return g;
}

Setup validated_setup() {
  Setup setup;
  setup.flow = kFlows[4];  // reads val.loss
  setup.run = settings(4);
  setup.run.epochs = 2;
  setup.run.metrics = {"auc"};
  setup.run.confusion = true;
  return setup;
}

}  // namespace

TEST_CASE("stop: within a validation the epoch stays open, its figures are unknown, and the resumed run is equal") {
  Setup setup = validated_setup();
  int all = 0;
  auto undisturbed = observed_graph(setup, [&](int n) { all = n; });
  const End whole = end_of(*undisturbed, CycleRuntime(*undisturbed, 0, setup.run).run());
  REQUIRE(all == 28);
  setup.validated = true;
  for (int moment = 1; moment <= all; ++moment) {
    CAPTURE(moment);
    int seen = 0;
    CycleRuntime* running = nullptr;
    auto g = observed_graph(setup, [&](int n) {
      if ((seen = n) == moment) running->stop();
    });
    FilesInMemory files;
    Checkpointer writer("runs", CheckpointInterval{1e9, 0, 0}, 3, files);
    CycleRuntime runtime(*g, 0, setup.run);
    running = &runtime;
    runtime.set_checkpoints(&writer);
    const CycleReport stopped = runtime.run();
    CHECK(stopped.stopped_by == "interrupt");
    CHECK(seen < moment + 4);  // no batch after that of the signal
    const size_t validated = moment > 14 ? 1 : 0;
    REQUIRE(stopped.by_epoch.size() == validated + 1);
    CHECK_FALSE(stopped.by_epoch.back().validation);
    CHECK(stopped.steps == static_cast<int64_t>(8 * (validated + 1)));
    CHECK(stopped.metrics.count("val.loss") == validated);
    if (validated == 1) CHECK(stopped.metrics.at("val.loss") == whole.report.by_epoch[0].validation->loss);
    std::vector<std::string> notes;
    const auto from = CheckpointFolder("runs", files).newest(notes);
    REQUIRE(from);
    CHECK(from->state.step == stopped.steps);
    CHECK(from->state.record.epoch_steps == 8);
    CHECK(from->state.record.by_epoch.size() == validated);
    expect_same(resumed(setup, *from, 2, 3), whole);
  }
}

TEST_CASE("checkpoint: one requested while a validation runs does not wait for it") {
  Setup setup = validated_setup();
  auto undisturbed = observed_graph(setup, [](int) {});
  const End whole = end_of(*undisturbed, CycleRuntime(*undisturbed, 0, setup.run).run());
  FilesInMemory files;
  Checkpointer writer("runs", CheckpointInterval{1e9, 0, 0}, 3, files);
  CycleRuntime* running = nullptr;
  std::future<bool> written;
  bool during = false;
  auto g = observed_graph(setup, [&](int n) {
    if (n != 6) return;
    written = std::async(std::launch::async, [&] { return running->checkpoint_now(); });
    during = written.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  });
  CycleRuntime runtime(*g, 0, setup.run);
  running = &runtime;
  runtime.set_checkpoints(&writer);
  expect_same(end_of(*g, runtime.run()), whole);
  CHECK(during);
  CHECK(written.get());
  const auto all = writer.folder().list();
  REQUIRE(all.size() == 2);
  CHECK(all.back().step == 8);
  setup.validated = true;
  expect_same(resumed(setup, read_checkpoint(all.back().path, files), 2, 3), whole);
}

TEST_CASE("checkpoint: one requested within a step is of the step before") {
  Setup setup;
  setup.flow = kFlows[1];
  setup.run = settings(3);
  setup.run.epochs = 2;
  setup.run.accumulate = 5;
  setup.run.shuffle = false;
  setup.run.metrics = {"auc", "f1(average=micro)", "perplexity"};
  auto whole = resumed_graph(setup, 0);
  const End undisturbed = end_of(*whole, CycleRuntime(*whole, 0, setup.run).run());
  FilesInMemory files;
  Checkpointer writer("runs", CheckpointInterval{1e9, 0, 0}, 3, files);
  auto g = graph_of(setup.flow);
  const std::vector<float> x = numbers(6 * setup.samples, 3);
  auto rows = std::make_shared<Rows<float>>(Shape{6}, x);
  CycleRuntime runtime(*g, 0, setup.run);
  bool taken = false;
  size_t given = 0;
  rows->on_sample = [&](size_t) {
    if (++given == 26) taken = runtime.checkpoint_now();  // some batches of the second step may have run by now
  };
  bind_producer(*g, "x", rows);
  bind_rows(*g, "y", Shape{}, labels(x), 3);
  runtime.set_checkpoints(&writer);
  expect_same(end_of(*g, runtime.run()), undisturbed);
  CHECK(taken);
  const auto all = writer.folder().list();
  REQUIRE(all.size() == 2);
  expect_same(resumed(setup, read_checkpoint(all.back().path, files), 1, 0), undisturbed);
}

namespace {

// A metric that counts rows, with or without saving the count.
class Rowcount : public Metric {
 public:
  void add(const MetricBatch& batch) override { rows_ += static_cast<double>(batch.rows); }
  void reset() override { rows_ = 0; }
  std::vector<Figure> figures() const override { return {{"rowcount", rows_}}; }

 private:
  double rows_ = 0;
};

void register_rowcount() {
  auto item = std::make_shared<Item>();
  item->kind = HX_METRIC;
  item->name = "rowcount";
  item->plugin = "test";
  item->self = new MetricFactory([](const Arguments&) { return std::make_unique<Rowcount>(); });
  item->vtable = harmonics::detail::metric_factory_vt();
  Registry::global().add(item);
}

}  // namespace

TEST_CASE("resume: a metric without saved state counts the rest of its epoch and reports it") {
  register_rowcount();
  Setup setup;
  setup.run = settings(5);
  setup.run.epochs = 3;
  setup.run.metrics = {"rowcount"};
  FilesInMemory files;
  Checkpointer writer("runs", CheckpointInterval{1e9, 0, 0}, 100, files);
  auto g = resumed_graph(setup, 0);
  RunSettings eight = setup.run;
  eight.steps = 8;
  CycleRuntime runtime(*g, 0, eight);
  runtime.set_checkpoints(&writer);
  const CycleReport first = runtime.run();
  REQUIRE(first.by_epoch.size() == 2);
  CHECK(first.by_epoch[0].figures.at("rowcount") == 30);
  CHECK(first.by_epoch[1].figures.at("rowcount") == 10);
  const auto rest = [&](const std::string& path) {
    RunSettings s = setup.run;
    s.metrics = {"rowcount", "topk(2)"};
    auto other = resumed_graph(setup, 0);
    CycleRuntime again(*other, 0, s);
    again.resume(read_checkpoint(path, files));
    return again.run();
  };
  const CycleReport from_8 = rest(writer.last());
  CHECK(from_8.resumed_at == 8);
  CHECK(from_8.notes ==
        std::vector<std::string>{
            "metric 'rowcount' of 'o' counts epoch 2 from step 9 on only: it cannot be kept in a checkpoint",
            "metric 'topk{k = 2}' of 'o' counts epoch 2 from step 9 on only: the checkpoint does not hold it"});
  REQUIRE(from_8.by_epoch.size() == 3);
  CHECK(from_8.by_epoch[0].figures.at("rowcount") == 30);
  CHECK(from_8.by_epoch[1].figures.at("rowcount") == 20);
  CHECK(from_8.by_epoch[2].figures.at("rowcount") == 30);
}

TEST_CASE("resume: streams that cannot return give a checkpoint that says so") {
  Setup setup;
  setup.run = settings(4);
  setup.run.steps = 3;
  FilesInMemory files;
  auto g = graph_of(setup.flow);
  const std::vector<float> x = numbers(6 * 30, 3);
  bind_producer(*g, "x", Rows<float>(Shape{6}, x).live());
  bind_rows(*g, "y", Shape{}, labels(x), 3);
  Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 3, files);
  CycleRuntime runtime(*g, 0, setup.run);
  std::vector<std::string> notes;
  runtime.on_note([&](const std::string& text) { notes.push_back(text); });
  runtime.set_checkpoints(&writer);
  runtime.run();
  CHECK(notes ==
        std::vector<std::string>{
            "checkpoints of this run keep its weights, but it cannot be resumed from them: stream 'x' is live"});
  const Checkpoint c = read_checkpoint(writer.last(), files);
  CHECK(c.state.not_resumable == "stream 'x' is live");
  auto other = resumed_graph(setup, 0);
  CycleRuntime again(*other, 0, setup.run);
  CHECK(message_of([&] { again.resume(c); }) ==
        "'" + c.path + "' cannot be resumed: stream 'x' is live\nits weights can be used: --weights " + c.path);
}

TEST_CASE("resume: an edited graph gets what fits, and the rest is named") {
  Setup setup;
  setup.run = settings(5);
  setup.run.epochs = 2;
  FilesInMemory files;
  Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 100, files);
  auto g = resumed_graph(setup, 0);
  CycleRuntime runtime(*g, 0, setup.run);
  runtime.set_checkpoints(&writer);
  runtime.run();
  const Checkpoint c = read_checkpoint(writer.last(), files);
  const std::vector<float> kept = weights(*g, "x.h.affine.bias");

  Setup edited = setup;
  edited.flow = R"(harmonic drops { producer x {6}; producer y {3}; layer h {8}; layer extra {4}; layer o;
       cycle { x -(relu, dropout(0.3))-> h -(relu)-> extra -> o; o <-(cross_entropy)- y; } })";
  edited.run.optimizer = "sgd(lr=0.1)";
  auto other = resumed_graph(edited, 0);
  CycleRuntime again(*other, 0, edited.run);
  again.resume(c);
  const CycleReport report = again.run();
  CHECK(weights(*other, "x.h.affine.bias") == kept);  // the run was complete
  std::string notes;
  for (const std::string& note : report.notes) notes += note + "\n";
  CHECK(notes.find("the flow's text has changed since the checkpoint was written\n") == 0);
  CHECK(notes.find("the training was adamw(") != std::string::npos);
  CHECK(notes.find("not in the checkpoint, starting fresh:\n  extra.o.affine.bias f32[3]\n  extra.o.affine.weight "
                   "f32[3, 4]\n  h.extra.affine.bias f32[4]\n  h.extra.affine.weight f32[4, 8]\n") !=
        std::string::npos);
  CHECK(
      notes.find(
          "in the checkpoint but not used by this graph:\n  h.o.affine.bias f32[3]\n  h.o.affine.weight f32[3, 8]\n") !=
      std::string::npos);
  CHECK(notes.find("the optimizer state of these does not fit and starts fresh:\n  optimizer.") != std::string::npos);

  Setup wider = setup;
  wider.flow = R"(harmonic drops { producer x {6}; producer y {3}; layer h {9}; layer o;
       cycle { x -(relu, dropout(0.3))-> h -> o; o <-(cross_entropy)- y; } })";
  auto wide = resumed_graph(wider, 0);
  CycleRuntime widened(*wide, 0, wider.run);
  widened.resume(c);
  notes.clear();
  for (const std::string& note : widened.run().notes) notes += note + "\n";
  CHECK(notes.find("of another shape, starting fresh:\n  h.o.affine.weight: f32[3, 8] in the checkpoint, f32[3, 9] in "
                   "the graph\n  x.h.affine.bias: f32[8] in the checkpoint, f32[9] in the graph\n") !=
        std::string::npos);

  auto foreign = graph_of(
      "harmonic z { producer x {6}; producer y {3}; layer a {4}; layer b; cycle { x -> a -> b; b <-(cross_entropy)- y; "
      "} }");
  const std::vector<float> x = numbers(6 * 30, 3);
  bind_rows(*foreign, "x", Shape{6}, x);
  bind_rows(*foreign, "y", Shape{}, labels(x), 3);
  CycleRuntime strange(*foreign, 0, setup.run);
  strange.resume(c);
  CHECK(message_of([&] { strange.run(); }).find("none of the 4 tensors of runs/checkpoint-") == 0);
}

TEST_CASE("resume: a checkpoint of a later cycle holds what earlier cycles learned") {
  const char* flow = R"hmx(harmonic two { producer x {6}; producer y {3}; layer h {5}; layer o; layer side {6};
    cycle (epochs 1) { x -(tanh)-> h -> o; h -> side; o <-(cross_entropy)- y; side <-(mse)- x; }
    cycle (epochs 2, optimizer="adam(lr=0.01)") { x -(tanh)-> h -> o; o <-(cross_entropy)- y; } })hmx";
  Setup setup;
  setup.flow = flow;
  setup.run = settings(4);
  FilesInMemory files;
  Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 100, files);
  auto g = resumed_graph(setup, 0);
  CycleRuntime(*g, 0, setup.run).run();
  CycleRuntime second(*g, 1, setup.run);
  second.set_checkpoints(&writer);
  second.run();
  const std::string undisturbed = learned_bytes(*g);
  writer.wait();
  const auto all = writer.folder().list();
  const Checkpoint c = read_checkpoint(all[all.size() / 2].path, files);
  CHECK(c.state.cycle == 1);
  auto other = resumed_graph(setup, 2);
  CycleRuntime resumed(*other, 1, setup.run);
  resumed.resume(c);
  CycleRuntime(*other, 0, setup.run).declare_parameters();
  CHECK(resumed.run().notes.empty());
  CHECK(learned_bytes(*other) == undisturbed);
}

TEST_CASE("resume: moments of 16 and 8 bits give the bits of an undisturbed run") {
  const char* flow = R"hmx(harmonic g { producer x {6}; producer y {3}; layer h {72}; layer k {64}; layer o;
    cycle (epochs 3) { x -(tanh)-> h -(tanh)-> k -> o; o <-(cross_entropy)- y; } })hmx";
  for (const char* optimizer : {"adamw(lr=0.01, moments=bf16)", "adamw(lr=0.01, moments=q8)",
                                "lion(lr=0.01, moments=q8)", "sgd(lr=0.01, momentum=0.9, moments=bf16)"}) {
    INFO(optimizer);
    Setup setup;
    setup.flow = flow;
    setup.run = settings(4);
    setup.run.optimizer = optimizer;
    FilesInMemory files;
    Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 100, files);
    auto g = resumed_graph(setup, 0);
    CycleRuntime first(*g, 0, setup.run);
    first.set_checkpoints(&writer);
    first.run();
    const std::string undisturbed = learned_bytes(*g);
    writer.wait();
    const auto all = writer.folder().list();
    const Checkpoint c = read_checkpoint(all[all.size() / 2].path, files);
    auto other = resumed_graph(setup, 2);
    CycleRuntime resumed(*other, 0, setup.run);
    resumed.resume(c);
    resumed.run();
    CHECK(learned_bytes(*other) == undisturbed);
  }
}

TEST_CASE("resume: time, epochs, steps and metrics end a run, given in the file or in settings") {
  const auto run = [](const std::string& conditions, const RunSettings& s, const Checkpoint* from = nullptr,
                      Checkpointer* writer = nullptr) {
    Setup setup;
    const std::string flow = "harmonic g { producer x {6}; producer y {3}; layer o; cycle " + conditions +
                             " { x -(affine)-> o; o <-(cross_entropy)- y; } }";
    setup.flow = flow.c_str();
    auto g = resumed_graph(setup, 0);
    CycleRuntime runtime(*g, 0, s);
    double seconds = 0;
    runtime.set_clock([&] { return seconds += 60; });  // a step takes one minute
    runtime.set_checkpoints(writer);
    if (from) runtime.resume(*from);
    return runtime.run();
  };
  RunSettings none = settings(10);
  struct Case {
    const char* file;
    std::function<void(RunSettings&)> set;
    const char* stopped_by;
  };
  for (const Case& c : {Case{"(for 1h)", [](RunSettings& s) { s.seconds = 3600; }, "for"},
                        Case{"(epochs 4)", [](RunSettings& s) { s.epochs = 4; }, "epochs"},
                        Case{"(steps 7)", [](RunSettings& s) { s.steps = 7; }, "steps"},
                        Case{"(until loss < 1.0)", [](RunSettings& s) { s.until = {"loss<1.0"}; }, "until loss < 1"}}) {
    CAPTURE(c.file);
    RunSettings by_setting = none;
    c.set(by_setting);
    const CycleReport file = run(c.file, none), setting = run("", by_setting),
                      over = run("(for 1s, steps 1, epochs 1)", [&] {
                        RunSettings s = by_setting;
                        if (!s.seconds) s.seconds = 1e9;
                        if (!s.steps) s.steps = 1000000;
                        if (!s.epochs) s.epochs = 100000;
                        return s;
                      }());
    CHECK(file.stopped_by == c.stopped_by);
    CHECK(setting.stopped_by == c.stopped_by);
    CHECK(over.stopped_by == c.stopped_by);
    CHECK(file.steps == setting.steps);
    CHECK(file.steps == over.steps);
    CHECK(file.loss == setting.loss);
  }
  RunSettings hour = none;
  hour.seconds = 3600;
  const CycleReport undisturbed = run("", hour);
  CHECK(undisturbed.seconds >= 3600);
  CHECK(undisturbed.epochs > 10);
  // The elapsed hour is restored.
  FilesInMemory files;
  Checkpointer writer("runs", CheckpointInterval{600, 0, 0}, 100, files);
  run("", hour, nullptr, &writer);
  writer.wait();
  const auto all = writer.folder().list();
  REQUIRE(all.size() >= 2);
  const Checkpoint middle = read_checkpoint(all.back().path, files);
  CHECK(middle.state.seconds >= 600);
  CHECK(middle.state.seconds < 3600);
  const CycleReport rest = run("", hour, &middle);
  CHECK(rest.stopped_by == "for");
  CHECK(rest.seconds >= 3600);
  CHECK(rest.seconds < 3800);
  CHECK(std::abs(rest.steps - undisturbed.steps) <= 10);
}

TEST_CASE("resume: a later error of the streams keeps the steps before") {
  Setup setup;
  setup.run = settings(5);
  setup.run.epochs = 3;
  FilesInMemory files;
  Checkpointer writer("runs", CheckpointInterval{1e9, 0, 0}, 3, files);
  auto g = graph_of(setup.flow);
  const std::vector<float> x = numbers(6 * 30, 3);
  auto rows = std::make_shared<Rows<float>>(Shape{6}, x);
  size_t given = 0;
  rows->on_sample = [&](size_t) {
    if (++given == 50) throw Error(ErrorKind::Stream, "the disk is on fire");
  };
  bind_producer(*g, "x", rows);
  bind_rows(*g, "y", Shape{}, labels(x), 3);
  CycleRuntime runtime(*g, 0, setup.run);
  runtime.set_checkpoints(&writer);
  CHECK(message_of([&] { runtime.run(); }) == "stream 'x': the disk is on fire");
  const Checkpoint c = read_checkpoint(writer.last(), files);
  CHECK(c.state.step > 3);
  auto whole = resumed_graph(setup, 0);
  const End undisturbed = end_of(*whole, CycleRuntime(*whole, 0, setup.run).run());
  expect_same(resumed(setup, c, 1, 0), undisturbed);
}
