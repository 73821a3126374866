// A running cycle that other threads observe and control.
#include <catch2/catch.hpp>

#include <atomic>
#include <cmath>
#include <thread>

#include "engine/cycle/run_control.hpp"
#include "engine/cycle/snapshot.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

using namespace std::chrono_literals;

constexpr const char* kControlledNet = R"(harmonic g {
  producer x {32}; producer y {8}; layer h {16}; layer o;
  cycle { x -(relu)-> h -> o; o <-(cross_entropy)- y; }
})";

bool await(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// A run that continues until stopped, at most one minute.
struct Running {
  explicit Running(int64_t accumulate = 1) : graph(graph_of(kControlledNet)), control(graph->graph().name) {
    bind_rows(*graph, "x", {32}, numbers(32 * 64));
    bind_rows<int64_t>(*graph, "y", {}, std::vector<int64_t>(64, 3));
    RunSettings s = settings(16);
    s.epochs = 1 << 30;
    s.seconds = 60;
    s.accumulate = accumulate;
    s.lr = 0.25;
    runtime.emplace(*graph, 0, s);
    runtime->set_control(&control);
    runtime->keep_snapshots([this](const std::shared_ptr<Snapshots>& kept) {
      const std::lock_guard<std::mutex> lock(mutex);
      snapshots = kept;
    });
    thread = std::thread([this] { report = runtime->run(); });
    REQUIRE(await([&] { return control.status().step > 3; }));
  }
  ~Running() {
    runtime->stop();
    if (thread.joinable()) thread.join();
  }
  void end() {
    runtime->stop();
    thread.join();
  }

  std::unique_ptr<BoundGraph> graph;
  RunControl control;
  std::optional<CycleRuntime> runtime;
  std::mutex mutex;
  std::shared_ptr<Snapshots> snapshots;
  CycleReport report;
  std::thread thread;
};

}  // namespace

TEST_CASE("run control: a run is paused, stepped and resumed exactly") {
  Running run(GENERATE(1, 3));
  run.control.pause();
  const RunStatus paused = run.control.status();
  CHECK(paused.phase == RunPhase::paused);
  std::this_thread::sleep_for(30ms);
  CHECK(run.control.status().step == paused.step);
  run.control.step(5);
  CHECK(run.control.status().step == paused.step + 5);
  CHECK(run.control.status().phase == RunPhase::paused);
  // Concurrent readers get the weights of the last step.
  CHECK(run.snapshots->fresh(Snapshots::Clock::now() + 10s)->version().step == paused.step + 5);
  run.control.resume();
  CHECK(await([&] { return run.control.status().step > paused.step + 20; }));
  CHECK(run.control.status().phase == RunPhase::running);
  CHECK_THAT(message_of([&] { run.control.step(1); }), Catch::StartsWith("the run is not paused"));
  run.control.pause();
  run.end();  // the stop request arrives while the run is paused
  CHECK(run.report.stopped_by == "interrupt");
}

TEST_CASE("run control: the status of a run equals its report") {
  Running run;
  const RunStatus s = run.control.status();
  CHECK(s.graph == "g");
  CHECK(s.trains);
  CHECK(s.samples == 16 * s.step);
  CHECK(s.metrics.count("loss") == 1);
  CHECK(s.metrics.count("o.accuracy") == 1);
  CHECK(s.learning_rate == 0.25);
  CHECK(s.samples_per_second > 0);
  CHECK(s.steps_per_second == Approx(s.samples_per_second / 16).epsilon(0.2));
  REQUIRE(s.streams.size() == 2);
  CHECK(s.streams[0].name == "x");
  CHECK(s.streams[0].bytes == static_cast<uint64_t>(s.samples) * 32 * 4);
  CHECK_FALSE(s.streams[0].live);
  CHECK_FALSE(s.streams[0].lag_seconds());
  CHECK(s.health == Health::ok);
  CHECK(await([&] { return !run.control.epochs(0).empty(); }));
  const RunRow row = run.control.epochs(0).front();
  CHECK(row.metrics.count("loss") == 1);
  CHECK(row.samples % 64 == 0);
  run.end();
  const RunStatus last = run.control.status();
  CHECK(last.step == run.report.steps);
  CHECK(last.samples == run.report.samples);
  CHECK(last.metrics.at("loss") == run.report.loss);
  CHECK(run.control.epochs(0).size() <= RunControl::kEpochRows);
  CHECK(run.control.epochs(run.control.epochs(0).back().number).empty());
}

TEST_CASE("run control: the status of a live stream is its health") {
  class Healthy : public Rows<float> {
   public:
    using Rows<float>::Rows;
    std::optional<StreamHealth> health() override {
      StreamHealth h;
      h.state = state;
      h.senders = 2;
      h.connected = 1;
      h.queued_samples = 30;
      h.queued_bytes = 250;
      h.window_bytes = 1000;
      h.lost = lost;
      h.last_error = "a frame was wrong";
      return h;
    }
    std::atomic<StreamHealth::State> state{StreamHealth::State::Receiving};
    std::atomic<uint64_t> lost{0};
  };
  auto g = graph_of("harmonic g { producer x {2}; layer o {2}; cycle { x -> o; o <-(mse)- x; } }");
  const auto x = std::make_shared<Healthy>(Shape{2}, numbers(2 * 10));
  bind_producer(*g, "x", x);
  RunControl control("g");
  RunSettings s = settings(1);
  s.epochs = 1;
  CycleRuntime runtime(*g, 0, s);
  runtime.set_control(&control);
  std::vector<RunStatus> seen;
  runtime.on_step(1, [&](const StepReport& r) {
    if (r.step == 2) x->lost = 3;
    if (r.step == 3) x->state = StreamHealth::State::Failed;
    seen.push_back(control.status());
  });
  runtime.run();
  REQUIRE(seen.size() == 10);
  REQUIRE(seen[0].streams[0].of_live);
  CHECK(seen[0].streams[0].state == "receiving");
  CHECK(seen[0].streams[0].back_pressure() == 0.25);
  CHECK(seen[0].streams[0].of_live->last_error == "a frame was wrong");
  CHECK(seen[0].health == Health::ok);
  CHECK(seen[1].health == Health::degraded);
  CHECK(seen[2].health == Health::failed);
  CHECK(seen[2].streams[0].state == "failed");
}

TEST_CASE("run control: a learning rate set from outside holds until the schedule is restored") {
  Running run;
  const auto at = [&](double rate) { return await([&] { return run.control.status().learning_rate == rate; }); };
  run.control.set_learning_rate(0.125);
  CHECK(at(0.125));
  CHECK(run.control.status().learning_rate_set);
  run.control.set_learning_rate(std::nullopt);
  CHECK(at(0.25));
  CHECK_FALSE(run.control.status().learning_rate_set);
  CHECK_THAT(message_of([&] { run.control.set_learning_rate(-1); }),
             Catch::StartsWith("a learning rate of -1 is not possible"));
  CHECK_THAT(message_of([&] { run.control.set_learning_rate(NAN); }),
             Catch::StartsWith("a learning rate of nan is not possible"));
}

TEST_CASE("run control: a stopped run accepts no requests") {
  Running run;
  CHECK_THAT(message_of([&] { run.control.checkpoint(); }), Catch::StartsWith("this run keeps no checkpoints"));
  run.control.stop();
  run.thread.join();
  CHECK(run.report.stopped_by == "interrupt");
  for (const auto& act : std::vector<std::function<void()>>{
           [&] { run.control.pause(); }, [&] { run.control.resume(); }, [&] { run.control.step(1); },
           [&] { run.control.stop(); }, [&] { run.control.checkpoint(); }, [&] { run.control.set_learning_rate(1); }})
    CHECK_THAT(message_of(act), Catch::StartsWith("the run cannot be"));
}

TEST_CASE("run control: many threads watch and control one run") {
  Running run;
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  const auto all_the_time = [&](std::function<void()> act) {
    threads.emplace_back([&over, act] {
      while (!over) act(), std::this_thread::sleep_for(100us);
    });
  };
  all_the_time([&] { run.control.status(); });
  all_the_time([&] { run.control.pause(), run.control.resume(); });
  all_the_time([&] { run.control.set_learning_rate(0.5); });
  all_the_time([&] { run.control.history(), run.control.log(0), run.control.note("note", "text"); });
  all_the_time([&] { run.snapshots->fresh(Snapshots::Clock::now() + 1s); });
  const int64_t before = run.control.status().step;
  std::this_thread::sleep_for(300ms);
  over = true;
  for (std::thread& t : threads) t.join();
  run.control.resume();
  CHECK(await([&] { return run.control.status().step > before + 10; }));
}

TEST_CASE("run history: a long run stays small and evenly spaced") {
  RunHistory history;
  history.begin({"loss"});
  for (int64_t step = 1; step <= 100000; ++step)
    if (history.wants(step)) history.add({step, static_cast<double>(step), 1, 2}, {static_cast<double>(step) / 2});
  REQUIRE(history.size() > RunHistory::kPoints / 2 - 1);
  CHECK(history.size() <= RunHistory::kPoints);
  const int64_t apart = history.point(1).step - history.point(0).step;
  for (size_t i = 0; i < history.size(); ++i) {
    CHECK(history.values(i)[0] == static_cast<double>(history.point(i).step) / 2);
    if (i > 0) CHECK(history.point(i).step - history.point(i - 1).step <= 2 * apart);
  }
  CHECK(history.point(history.size() - 1).step > 100000 - 2 * apart);
}

TEST_CASE("run control: the log keeps the last lines and their numbers") {
  RunControl control("g");
  for (int i = 1; i <= 1000; ++i) control.note("note", std::to_string(i));
  const std::vector<LogLine> lines = control.log(0);
  REQUIRE(lines.size() == RunControl::kLogLines);
  CHECK(lines.back().text == "1000");
  CHECK(lines.back().number == 1000);
  CHECK(control.log(998).size() == 2);
  CHECK(control.status().notes == 1000);
  control.note("error", std::string(1 << 20, 'x'));
  CHECK(control.log(1000).front().text.size() == 4096);
}

TEST_CASE("speed: covers the last five seconds") {
  Speed speed;
  speed.begin(0, 0);
  for (int i = 1; i <= 1000; ++i) speed.add(i * 0.01, i);
  CHECK(speed.at(10) == Approx(100).epsilon(0.03));
  CHECK(speed.at(12.5) == Approx(50).epsilon(0.05));
  CHECK(speed.at(16) == 0);
  speed.add(60, 1050);
  CHECK(speed.at(60) == Approx(10).epsilon(0.2));
}
