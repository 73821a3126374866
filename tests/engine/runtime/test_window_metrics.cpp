// Metrics: means over steps, and over the last samples before they are learned: storage, values, and resuming.
#include <catch2/catch.hpp>

#include <cmath>
#include <deque>
#include <random>

#include "engine/cycle/run_control.hpp"
#include "engine/flow/metric_window.hpp"
#include "engine/measure/evaluate.hpp"
#include "tests/engine/execution/allocation_count.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

struct Said {
  uint64_t samples = 0;
  std::vector<float> said, meant;
  std::vector<int32_t> labels;
};

hx_metric_batch batch_of(const Said& s, uint64_t outputs, bool classes) {
  hx_metric_batch b{};
  b.rows = s.said.size() / outputs;
  b.predictions = s.said.data();
  if (classes)
    b.labels = s.labels.data();
  else
    b.targets = s.meant.data();
  return b;
}

void expect_rows(const MetricWindow& window, const std::deque<Said>& steps, bool classes) {
  std::vector<float> said, meant;
  std::vector<int32_t> labels;
  for (const Said& s : steps) {
    said.insert(said.end(), s.said.begin(), s.said.end());
    meant.insert(meant.end(), s.meant.begin(), s.meant.end());
    labels.insert(labels.end(), s.labels.begin(), s.labels.end());
  }
  hx_metric_batch is{};
  window.fill(is);
  REQUIRE(is.rows == window.rows());
  CHECK(std::equal(said.begin(), said.end(), is.predictions));
  if (classes) {
    REQUIRE(is.rows == labels.size());
    CHECK(std::equal(labels.begin(), labels.end(), is.labels));
  } else {
    REQUIRE(is.rows * 3 == meant.size());
    CHECK(std::equal(meant.begin(), meant.end(), is.targets));
  }
}

constexpr const char* kWindowFlow =
    R"(harmonic g { producer x {6}; producer y {3}; layer h {7}; layer o; layer side {6};
  cycle { x -(tanh)-> h -> o; o <-(cross_entropy)- y; h -> side; side <-(mse)- x; } })";

std::vector<uint8_t> window_labels(const std::vector<float>& x) {
  std::vector<uint8_t> y;
  for (size_t i = 0; i < x.size(); i += 6) y.push_back(static_cast<uint8_t>(x[i] > 0.3f ? 2 : x[i + 1] > 0 ? 1 : 0));
  return y;
}

std::unique_ptr<BoundGraph> window_graph(size_t samples = 120, const char* flow = kWindowFlow) {
  auto g = graph_of(flow);
  const std::vector<float> x = numbers(6 * samples, 3);
  bind_rows(*g, "x", {6}, x);
  bind_rows(*g, "y", {}, window_labels(x), 3);
  return g;
}

RunSettings windowed(int64_t window) {
  RunSettings s = settings(8);
  s.epochs = 1;
  s.shuffle = false;
  s.window = window;
  s.metrics = {"f1", "auc", "topk(2)", "rmse", "r2"};
  return s;
}

}  // namespace

TEST_CASE("metrics: means over the last hundred steps, weighted by samples") {
  WindowMean w;
  CHECK(w.empty());
  w.add(3, 3);  // sum, weight
  w.add(5, 1);
  CHECK(w.mean() == Approx(2));
  for (int i = 0; i < 100; ++i) w.add(2 * i, 2);
  CHECK(w.mean() == Approx(49.5));
  CHECK(w.sums(4).mean() == Approx(97.5));
  CHECK(w.sums(100).mean() == Approx(49.5));
  CHECK(w.sums(1000).mean() == Approx(49.5));
  Metrics m;
  const size_t loss = m.declare("loss");
  CHECK_FALSE(m.holds(parse_comparison("loss<1e9")));
  m.add(loss, 0, 1);
  m.add(loss, 0.75, 2);
  CHECK_FALSE(m.holds(parse_comparison("loss<1e9")));  // the step has not ended
  m.end_step();
  CHECK(m.holds(parse_comparison("loss <= 0.5")));
  CHECK_FALSE(m.holds(parse_comparison("loss<0.5")));
  m.add(loss, 1000, 5);
  m.drop_step();
  m.add(loss, 0.5, 3);
  m.end_step();
  CHECK(m.value(loss) == Approx(0.5));
  m.add(loss, 2, 1);
  m.end_step();
  CHECK(m.recent(1).at("loss") == Approx(2));
  CHECK(m.recent(2).at("loss") == Approx(3.5 / 4));
  CHECK(m.recent(1000).at("loss") == Approx(m.value(loss)));
  m.add(loss, 0, 0);
  m.end_step();
  CHECK(m.recent(1).empty());  // nothing counts
  CHECK(m.recent(2).at("loss") == Approx(2));
  CHECK(m.recent(3).at("loss") == Approx(3.5 / 4));
  Metrics resumed;
  resumed.declare("loss");
  resumed.restore(m.windows(), {});
  for (const int64_t steps : {1, 2, 3, 4, 1000}) CHECK(resumed.recent(steps) == m.recent(steps));
}

TEST_CASE("window metrics: the last samples of a layer are kept by whole steps and restored") {
  std::mt19937 random(5);
  for (const bool classes : {true, false})
    for (const uint64_t most : {1, 7, 50}) {
      std::optional<MetricWindow> window(std::in_place, most, 3, classes);
      std::deque<Said> kept;
      for (int step = 0; step < 300; ++step) {
        Said whole;
        for (size_t batches = 1 + random() % 3; batches > 0; --batches) {
          Said part;
          part.samples = 1 + random() % 6;
          for (uint64_t rows = part.samples - random() % 2; rows > 0; --rows) {  // some are not counted
            part.labels.push_back(static_cast<int32_t>(random() % 3));
            for (int i = 0; i < 3; ++i)
              part.said.push_back(static_cast<float>(random())), part.meant.push_back(static_cast<float>(random()));
          }
          if (classes)
            part.meant.clear();
          else
            part.labels.clear();
          window->add(batch_of(part, 3, classes), part.samples);
          whole.samples += part.samples;
          whole.said.insert(whole.said.end(), part.said.begin(), part.said.end());
          whole.meant.insert(whole.meant.end(), part.meant.begin(), part.meant.end());
          whole.labels.insert(whole.labels.end(), part.labels.begin(), part.labels.end());
        }
        expect_rows(*window, kept, classes);  // an unfinished step is not counted
        const MetricWindowState before = window->state();
        CHECK(before.samples.size() == kept.size());
        window->end_step();
        kept.push_back(whole);
        const auto held = [&] {
          uint64_t n = 0;
          for (const Said& s : kept) n += s.samples;
          return n;
        };
        while (kept.size() > 1 && held() > most) kept.pop_front();
        expect_rows(*window, kept, classes);
        if (random() % 20 == 0) {
          const MetricWindowState state = window->state();
          window.emplace(most, 3, classes);
          REQUIRE(window->restore(state));
          expect_rows(*window, kept, classes);
        }
      }
      MetricWindow other(most, 2, classes);
      CHECK_FALSE(other.restore(window->state()));
      MetricWindow turned(most, 3, !classes);
      CHECK_FALSE(turned.restore(window->state()));
    }
}

TEST_CASE("window metrics: a full window does not allocate") {
  if (!kCountsAllocations) return;
  MetricWindow window(100, 3, true);
  Said step;
  step.samples = 7;
  step.said.assign(21, 1);
  step.labels.assign(7, 1);
  const auto add = [&] { window.add(batch_of(step, 3, true), 7), window.end_step(); };
  for (int i = 0; i < 200; ++i) add();
  start_counting();
  for (int i = 0; i < 2000; ++i) add();
  CHECK(stop_counting() == 0);
  CHECK(window.rows() == 98);
}

TEST_CASE("window metrics: equal a test on the same samples") {
  auto g = window_graph();
  RunSettings s = windowed(40);
  s.lr = 1e-30;  // weights hardly change, so earlier predictions equal later ones
  CycleRuntime runtime(*g, 0, s);
  RunControl control("g");
  runtime.set_control(&control);
  std::vector<std::string> names;
  std::map<std::string, double> logged;
  runtime.on_start([&](const std::vector<std::string>& all, const Beginning&) { names = all; });
  runtime.on_step(1, [&](const StepReport& r) { logged = r.metrics; });
  const CycleReport report = runtime.run();
  REQUIRE(report.steps == 15);
  const std::vector<float> all = numbers(6 * 120, 3), last(all.end() - 6 * 40, all.end());
  bind_test(*g, "x", {6}, last);
  bind_test(*g, "y", {}, window_labels(last), 3);
  const Evaluation test = evaluate(*g, 0, g->test_streams(), s);
  REQUIRE(test.samples == 40);
  size_t compared = 0;
  for (const LayerFigures& layer : test.layers)
    for (const char* name : {"f1", "auc", "top2", "rmse", "r2"}) {
      const double* figure = layer.find(name);
      if (!figure) continue;
      const std::string window = "window." + layer.layer + "." + name;
      INFO(window);
      REQUIRE(report.metrics.count(window));
      CHECK(report.metrics.at(window) == Approx(*figure).epsilon(1e-6));
      CHECK(report.metrics.at("window." + std::string(name)) == report.metrics.at(window));
      CHECK(logged.at(window) == report.metrics.at(window));
      CHECK(std::find(names.begin(), names.end(), window) != names.end());
      ++compared;
    }
  CHECK(compared == 5);
  CHECK(report.metrics.at("window.o.f1") != report.by_epoch.at(0).figures.at("o.f1"));
  const RunStatus status = control.status();
  REQUIRE(status.window);
  CHECK(status.window->samples == 40);
  CHECK(status.window->metrics.count("o.f1"));
  CHECK(status.window->metrics.count("side.rmse"));
  CHECK(status.metrics.count("window.o.f1") == 0);
}

TEST_CASE("window metrics: conditions may use them after every step") {
  constexpr const char* kDeciding = R"(harmonic g { producer x {6}; producer y {3}; layer h {7}; layer o;
    cycle { if window.o.f1 > 0.5 { x -(tanh)-> h; } else { x -(relu)-> h; } h -> o; o <-(cross_entropy)- y; } })";
  RunSettings s = windowed(30);
  s.metrics = {"f1"};
  s.epochs = 200;
  s.lr = 0.02;
  s.until = {"window.o.f1>=0.9"};
  auto g = window_graph(120, kDeciding);
  CycleRuntime runtime(*g, 0, s);
  double last = 0;
  size_t early = 0;
  runtime.on_step(1, [&](const StepReport& r) {
    early += last >= 0.9;
    last = r.metrics.count("window.o.f1") ? r.metrics.at("window.o.f1") : 0;
  });
  const CycleReport report = runtime.run();
  CHECK(report.stopped_by == "until window.o.f1 >= 0.9");
  CHECK(last >= 0.9);
  CHECK(early == 0);  // it ended with the first step that satisfied the condition
  s.metrics.clear();
  auto unasked = window_graph(120);
  CHECK_THAT(message_of([&] { CycleRuntime(*unasked, 0, s).run(); }),
             Catch::Contains("can never hold") && Catch::Contains("request it with --metric 'f1'"));
}

TEST_CASE("window metrics: a window that needs too much memory is left out and reported") {
  auto g = window_graph();
  RunSettings s = windowed(8 << 20);
  s.metrics = {"f1"};
  const CycleReport report = CycleRuntime(*g, 0, s).run();
  CHECK(report.metrics.count("window.o.loss") == 1);
  CHECK(report.metrics.count("window.o.f1") == 0);
  REQUIRE(report.notes.size() == 2);
  CHECK(report.notes[0] ==
        "window metrics of 'o' are off: its predictions of the last 8388608 samples need 128 MiB, the limit is 64 MiB; "
        "use a smaller --window");
  CHECK_THAT(report.notes[1], Catch::StartsWith("window metrics of 'side' are off"));
  RunSettings few = windowed(4);
  few.metrics = {"f1"};
  auto small = window_graph();
  CHECK(CycleRuntime(*small, 0, few).run().metrics.count("window.f1") == 1);
}
