// Predictions during training: version of the weights, batches, errors.
#include "tests/engine/serving/served.hpp"

#include <atomic>
#include <future>
#include <map>

#include "tests/engine/language/small_llama.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("predictor: every prediction has the weights of the step it names") {
  Served run;
  std::mutex mutex;
  std::map<int64_t, Affine> by_step;
  run.runtime->on_step(1, [&](const StepReport& r) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (by_step.size() < 200000) by_step[r.step] = affine_of(*run.graph);
  });
  run.start();
  const std::vector<float> x = numbers(4 * 40, 3);
  struct Got {
    WeightsVersion version;
    std::vector<float> x, y;
  };
  std::vector<Got> all;
  std::vector<std::thread> clients;
  for (int c = 0; c < 3; ++c)
    clients.emplace_back([&, c] {
      int64_t seen = 0;
      for (int i = 0; i < 40; ++i) {
        // Four groups of requests, each with newer weights than the previous one, regardless of the speed of answers.
        if (i % 10 == 0 &&
            !await([&] { return run.snapshots->fresh(std::chrono::steady_clock::now() + 1s)->version().step > seen; }))
          return;
        const uint64_t samples = 1 + static_cast<uint64_t>(7 * i + c) % 40;  // some exceed the largest batch
        const std::vector<float> mine(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(4 * samples));
        const Asked asked = ask(run.predictor, samples, mine);
        const std::lock_guard<std::mutex> lock(mutex);
        if (!asked.prediction) continue;
        seen = asked.prediction->version.step;
        all.push_back({asked.prediction->version, mine, floats_of(asked.prediction->outputs.at(0))});
      }
    });
  for (std::thread& t : clients) t.join();
  run.end();
  REQUIRE(all.size() == 120);
  std::set<int64_t> steps;
  for (const Got& got : all) {
    steps.insert(got.version.step);
    if (!by_step.count(got.version.step)) continue;  // before the first step, or no longer recorded
    const Affine& affine = by_step.at(got.version.step);
    REQUIRE(got.y.size() == got.x.size() / 2);
    for (size_t i = 0; i < got.x.size() / 4; ++i) {
      const std::vector<float> y = affine(got.x.data() + 4 * i);
      CHECK(got.y[2 * i] == Approx(y[0]).margin(1e-5));
      CHECK(got.y[2 * i + 1] == Approx(y[1]).margin(1e-5));
    }
  }
  CHECK(steps.size() >= 4);
  const AnswerTimes::Report report = run.predictor.report();
  CHECK(report.requests == 120);
  CHECK(report.failed + report.refused == 0);
  CHECK(*report.p50_ms <= *report.p99_ms);
}

TEST_CASE("predictor: waiting requests are computed together") {
  Served run({"secret-token", true, false}, {200ms, 1024});
  run.start();
  run.control.pause();
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  const int64_t step = run.control.status().step;
  REQUIRE(await([&] { return run.snapshots->newest()->version().step == step; }));
  for (int c = 0; c < 8; ++c)
    clients.emplace_back([&] {
      const Asked asked = ask(run.predictor, 4, numbers(16));
      if (asked.prediction && asked.prediction->version.step == step) ++right;
    });
  for (std::thread& t : clients) t.join();
  CHECK(right == 8);
  CHECK(run.predictor.report().batches == 1);  // of 32, before the time limit
  const auto begun = std::chrono::steady_clock::now();
  ask(run.predictor, 1, numbers(4));
  CHECK(std::chrono::steady_clock::now() - begun >= 200ms);
  CHECK(run.predictor.report().batches == 2);
}

TEST_CASE("predictor: a request beyond the queue limit is refused at once") {
  Served run({"secret-token", true, false}, {10s, 20});
  run.start();
  const auto ports = run.predictor.ports();
  std::atomic<int> failed{0};
  run.predictor.ask(ports, 15, {bytes_of(numbers(60))},
                    [&](const Prediction*, const Error* e) { failed += e != nullptr; });
  CHECK_THAT(message_of([&] { run.predictor.ask(ports, 6, {bytes_of(numbers(24))}, nullptr); }),
             Catch::StartsWith("the queue is full: it holds at most 20 samples"));
  CHECK(run.predictor.report().refused == 1);
  CHECK(run.predictor.report().queued == 15);
}

TEST_CASE("predictor: waiting requests are answered when it is destroyed") {
  std::atomic<int> failed{0};
  {
    Served run({"secret-token", true, false}, {10s, 20});
    run.start();
    run.predictor.ask(run.predictor.ports(), 1, {bytes_of(numbers(4))},
                      [&](const Prediction*, const Error* e) { failed += e != nullptr; });
  }
  CHECK(failed == 1);
}

TEST_CASE("predictor: requests that do not fit the model are refused") {
  Served run;
  CHECK(run.predictor.ports() == nullptr);
  run.start();
  const auto ports = run.predictor.ports();
  REQUIRE(ports->inputs.size() == 1);
  CHECK(ports->inputs[0].name == "x");
  CHECK(ports->inputs[0].sample.shape == Shape{4});
  REQUIRE(ports->outputs.size() == 1);
  CHECK(ports->outputs[0].name == "o");
  CHECK_THAT(message_of([&] { run.predictor.ask(ports, 0, {{}}, nullptr); }),
             Catch::StartsWith("the request has 0 samples"));
  CHECK_THAT(message_of([&] { run.predictor.ask(ports, 257, {bytes_of(numbers(4 * 257))}, nullptr); }),
             Catch::StartsWith("the request has 257 samples"));
  CHECK_THAT(message_of([&] { run.predictor.ask(ports, 2, {bytes_of(numbers(4))}, nullptr); }),
             Catch::StartsWith("the inputs do not have"));
  CHECK_THAT(message_of([&] { run.predictor.ask(std::make_shared<ModelPorts>(), 1, {bytes_of(numbers(4))}, nullptr); }),
             Catch::StartsWith("another cycle of the flow"));
}

TEST_CASE("predictor: predictions do not change the training") {
  const auto learned = [](bool asked) {
    auto g = affine_graph();
    RunSettings s = settings(16);
    s.epochs = 60;
    CycleRuntime runtime(*g, 0, s);
    Predictor predictor;
    std::atomic<bool> over{false};
    std::atomic<int> answers{0};
    std::thread client;
    if (asked) {
      runtime.keep_snapshots([&](const std::shared_ptr<Snapshots>& kept) {
        predictor.serve(g->model(0), 0, g->compile_options(s), kept);
        client = std::thread([&] {
          while (!over) answers += ask(predictor, 5, numbers(20)).prediction.has_value();
        });
      });
      runtime.on_step(50, [&](const StepReport&) { std::this_thread::sleep_for(answers > 0 ? 1ms : 50ms); });
    }
    runtime.run();
    over = true;
    if (client.joinable()) client.join();
    if (asked) CHECK(answers > 0);
    return learned_bytes(*g);
  };
  CHECK(learned(true) == learned(false));
}

TEST_CASE("predictor: a model without a flow answers like its own program") {
  const Model model = small_llama();
  const auto snapshots = std::make_shared<Snapshots>(*model.parameters, WeightsVersion{});
  Predictor predictor;
  predictor.serve(model, 0, {}, snapshots, 4);
  const auto ports = predictor.ports();
  REQUIRE(ports->inputs.size() == 1);
  CHECK(ports->inputs[0].name == "tokens");
  CHECK(ports->inputs[0].sample == TensorType{DType::I32, Shape{4}});
  CHECK(ports->inputs[0].classes == 50);
  REQUIRE(ports->outputs.size() == 1);
  CHECK(ports->outputs[0].name == "scores");
  CHECK(ports->outputs[0].sample == TensorType{DType::F32, Shape{4, 50}});

  std::vector<int32_t> tokens = some_tokens(3 * 4, 50);
  const auto bytes = [&] {
    const auto* p = reinterpret_cast<const std::byte*>(tokens.data());
    return std::vector<std::byte>(p, p + tokens.size() * sizeof(int32_t));
  };
  std::promise<std::vector<float>> answer;
  predictor.ask(ports, 3, {bytes()}, [&](const Prediction* p, const Error*) {
    answer.set_value(p ? floats_of(p->outputs.at(0)) : std::vector<float>{});
  });
  const std::vector<float> scores = answer.get_future().get();
  StepOptions options;
  options.mode = Mode::infer;
  options.batch = 3;
  options.tokens = 4;
  const auto executor = make_sequential_executor();
  CompiledStep step(lower(model, options), *model.parameters, *executor, {});
  const void* streams[1] = {tokens.data()};
  step.set(streams, 0, 1, 0);
  step.run();
  REQUIRE(scores.size() == 3 * 4 * 50);
  for (size_t i = 0; i < scores.size(); ++i)
    CHECK(scores[i] == Approx(step.executable().output("scores").data<float>()[i]).margin(1e-5));
  tokens[5] = 50;
  CHECK(message_of([&] { predictor.ask(ports, 3, {bytes()}, nullptr); }).find("the graph knows 50 classes") !=
        std::string::npos);
  for (const auto& [name, t] : snapshots->newest()->weights().all())
    CHECK(t.storage == model.parameters->find(name)->storage);
}
