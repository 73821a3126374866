// Gradients in a cycle: accumulated over batches, clipped, and applied with the schedule's rate.
#include <catch2/catch.hpp>

#include <cmath>

#include "engine/flow/metrics.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr const char* kTanhNet = R"(harmonic g {
  producer x {6}; producer y {3}; layer h {5}; layer o;
  cycle { x -(tanh)-> h -> o; o <-(cross_entropy)- y; }
})";

struct Outcome {
  CycleReport report;
  std::map<std::string, std::vector<float>> weights;
};

void bind_tanh_net(BoundGraph& g, size_t samples) {
  bind_rows(g, "x", {6}, numbers(6 * samples));
  std::vector<uint8_t> labels;
  for (size_t i = 0; i < samples; ++i) labels.push_back(static_cast<uint8_t>(i * 7 % 3));
  bind_rows(g, "y", {}, labels);
}

Outcome train(const char* flow, size_t samples, RunSettings s) {
  auto g = graph_of(flow);
  bind_tanh_net(*g, samples);
  s.shuffle = false;
  Outcome o{CycleRuntime(*g, 0, s).run(), {}};
  for (const auto& [name, t] : g->store().all())
    if (t.role != Role::moment) o.weights[name] = weights(*g, name);
  return o;
}

void check_close(const Outcome& a, const Outcome& b, double tolerance) {
  REQUIRE(a.weights.size() == b.weights.size());
  for (const auto& [name, values] : a.weights) {
    const std::vector<float>& other = b.weights.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      INFO(name << " " << i << ": " << values[i] << " and " << other[i]);
      CHECK(std::abs(values[i] - other[i]) <= tolerance * (1 + std::abs(other[i])));
    }
  }
}

// o = w, with loss |o - y| and distant y, so every step changes w by the learning rate.
constexpr const char* kDescent = R"hmx(harmonic g {
  producer x {1}; producer y {1}; layer o {1};
  cycle (optimizer="sgd(lr=0.5)") { x -(affine(bias=false))-> o; o <-(mae)- y; }
})hmx";

struct Descent {
  CycleReport report;
  double moved;
};
Descent descend(RunSettings s, size_t samples = 1) {
  auto g = graph_of(kDescent);
  bind_rows<float>(*g, "x", {1}, std::vector<float>(samples, 1));
  bind_rows<float>(*g, "y", {1}, std::vector<float>(samples, -1e4f));
  declare(*g);
  set_weights(*g, "x.o.affine.weight", {0});
  const CycleReport r = CycleRuntime(*g, 0, s).run();
  return {r, -static_cast<double>(weights(*g, "x.o.affine.weight")[0])};
}

}  // namespace

TEST_CASE("accumulate: gradients over batches equal those of one large batch") {
  for (const char* optimizer : {"sgd(lr=0.25, momentum=0.5)", "adam(lr=0.015625)", "lamb(lr=0.0625)"})
    for (const double clip : {0.0, 0.125})
      for (const size_t samples : {24, 29}) {  // 29: the last batch and the last group are short
        RunSettings large = settings(12), small = settings(4);
        large.optimizer = small.optimizer = optimizer;
        large.clip = small.clip = clip;
        large.epochs = small.epochs = 8;
        small.accumulate = 3;
        const Outcome a = train(kTanhNet, samples, large), b = train(kTanhNet, samples, small);
        INFO(optimizer << ", clip " << clip << ", " << samples << " samples");
        CHECK(a.report.steps == 8 * (samples == 24 ? 2 : 3));
        CHECK(b.report.steps == a.report.steps);
        CHECK(b.report.samples == a.report.samples);
        CHECK(b.report.epochs == 8);
        CHECK(b.report.loss == Approx(a.report.loss).epsilon(1e-5));
        CHECK(b.report.accuracy == Approx(a.report.accuracy));
        REQUIRE(b.report.by_epoch.size() == a.report.by_epoch.size());
        CHECK(b.report.by_epoch[3].steps == a.report.by_epoch[3].steps);
        CHECK(b.report.by_epoch[3].loss == Approx(a.report.by_epoch[3].loss).epsilon(1e-5));
        CHECK(b.report.curve.size() == a.report.curve.size());
        check_close(b, a, 2e-6);
      }
}

TEST_CASE("clip: the norm of the gradients before it is clipped is a metric") {
  for (const int64_t accumulate : {1, 2})
    for (const double clip : {0.25, 100.0}) {
      RunSettings s = settings(1);
      s.steps = 3;
      s.accumulate = accumulate;
      s.clip = clip;
      const Descent descent = descend(s, 2);
      REQUIRE(descent.report.metrics.count("gradient_norm"));
      CHECK(descent.report.metrics.at("gradient_norm") == 1);
      s.until = {"gradient_norm > 0.5"};
      CHECK(descend(s, 2).report.steps == 1);
      s.window = 10;
      s.until = {"window.gradient_norm > 0.5"};
      CHECK(message_of([&] { descend(s, 2); }).find("unknown metric 'window.gradient_norm'") != std::string::npos);
    }
  RunSettings s = settings(1);
  s.steps = 3;
  CHECK_FALSE(descend(s).report.metrics.count("gradient_norm"));
  s.until = {"gradient_norm > 0.5"};
  CHECK(message_of([&] { descend(s); }).find("does not measure 'gradient_norm'") != std::string::npos);
}

TEST_CASE("progress: the products of a sample are those of the step's matrices") {
  auto g = graph_of(kTanhNet);
  bind_tanh_net(*g, 24);
  CycleRuntime runtime(*g, 0, settings(8));
  double products = 0;
  runtime.on_progress([&](const Progress& p) { products = p.products; });
  const CycleReport report = runtime.run();
  // 6 x 5 and 5 x 3: forward, and the gradients of the weights and of h.
  CHECK(products == 2 * (2 * 30 + 3 * 15));
  CHECK(report.products == products);
}

TEST_CASE("accumulate: gradients of transposed weights for any batch sizes") {
  const char* flow = R"(harmonic g {
    producer x {6}; producer y {3}; layer h {40}; layer i {33}; layer o;
    cycle { x -(affine, tanh)-> h -(affine, tanh)-> i -> o; o <-(cross_entropy)- y; }
  })";
  for (const char* optimizer : {"sgd(lr=0.25)", "adam(lr=0.015625)"})
    for (const size_t samples : {24, 29}) {
      RunSettings large = settings(12), small = settings(4);
      large.optimizer = small.optimizer = optimizer;
      large.epochs = small.epochs = 4;
      small.accumulate = 3;
      INFO(optimizer << ", " << samples << " samples");
      check_close(train(flow, samples, small), train(flow, samples, large), 1e-5);
    }
}

TEST_CASE("accumulate: results do not depend on threads") {
  RunSettings s = settings(4);
  s.accumulate = 3;
  s.clip = 0.1;
  s.epochs = 3;
  const Outcome one = train(kTanhNet, 29, s);
  s.threads = 2;
  CHECK(train(kTanhNet, 29, s).weights == one.weights);
}

TEST_CASE("running statistics: updated with every batch, not with every step") {
  const char* flow = R"(harmonic g {
    producer x {6}; producer y {3}; layer h {5}; layer o;
    cycle { x -(affine, norm(kind="batch"), tanh)-> h -> o; o <-(cross_entropy)- y; }
  })";
  const auto statistics = [&](int64_t accumulate) {
    RunSettings s = settings(4);
    s.optimizer = "sgd(lr=0)";
    s.epochs = 2;
    s.accumulate = accumulate;
    return train(flow, 24, s).weights;
  };
  const auto each = statistics(1);
  CHECK(each.size() > 6);
  CHECK(statistics(3) == each);
}

TEST_CASE("accumulate: steps are optimizer steps, and an incomplete group is not applied") {
  RunSettings s = settings(1);
  s.accumulate = 4;
  s.steps = 3;
  const Descent limited = descend(s, 40);
  CHECK(limited.report.steps == 3);
  CHECK(limited.report.samples == 12);
  CHECK(limited.report.stopped_by == "steps");
  CHECK(limited.moved == Approx(1.5));
  auto g = graph_of(kDescent);
  auto x = std::make_shared<Rows<float>>(Shape{1}, std::vector<float>(1000, 1));
  bind_producer(*g, "x", x);
  bind_rows<float>(*g, "y", {1}, std::vector<float>(1000, -1e4f));
  s.steps.reset();
  s.epochs = 1;
  s.accumulate = 300;
  CycleRuntime runtime(*g, 0, s);
  int64_t at_stop = -1;
  runtime.on_progress([&](const Progress& p) {
    if (p.step == 1 && at_stop < 0) at_stop = p.samples, runtime.stop();
  });
  const CycleReport r = runtime.run();
  CHECK(at_stop == 300);
  CHECK(r.steps == 1);
  CHECK(r.stopped_by == "interrupt");
  CHECK(r.samples < 600);
}

TEST_CASE("conditions: a branch is chosen for a whole group") {
  auto g = graph_of(R"hmx(harmonic g {
    producer x {1}; producer y {1}; layer o {1};
    cycle (steps 2, optimizer="sgd(lr=0.5)", accumulate=2) {
      x -(affine(bias=false))-> o;
      if loss < 1e9 { o <-(mae(weight=3))- y; } else { o <-(mae)- y; }
    }
  })hmx");
  bind_rows<float>(*g, "x", {1}, std::vector<float>(8, 1));
  bind_rows<float>(*g, "y", {1}, std::vector<float>(8, -1e4f));
  declare(*g, "sgd", {0});
  set_weights(*g, "x.o.affine.weight", {0});
  CycleRuntime(*g, 0, settings(1)).run();
  CHECK(-weights(*g, "x.o.affine.weight")[0] ==
        Approx(0.5 + 1.5));  // no comparison holds before the first step has ended
}

TEST_CASE("schedule: gives the rate of every step of the run") {
  const auto expected = [](const char* schedule, int64_t steps) {
    LearningRate rate(parse_schedule(schedule), 0.5, {steps, false});
    double sum = 0;
    for (int64_t i = 0; i < steps; ++i) sum += rate.at(i);
    return sum;
  };
  for (const char* schedule : {"constant", "linear(warmup=4)", "cosine(final=0.25)", "step(every=5, factor=0.5)",
                               "wsd(warmup=2, decay=0.5)"}) {
    INFO(schedule);
    RunSettings s = settings(1);
    s.schedule = schedule;
    s.steps = 20;
    const Descent by_steps = descend(s);
    CHECK(by_steps.moved == Approx(expected(schedule, 20)).epsilon(1e-5));
    LearningRate rate(parse_schedule(schedule), 0.5, {20, false});
    double last = 0;
    for (int64_t i = 0; i < 20; ++i) last = rate.at(i);
    CHECK(by_steps.report.learning_rate == Approx(last));
    s.steps.reset();
    s.epochs = 5;  // of 2 steps: 7 batches in groups of 4
    s.accumulate = 4;
    const Descent by_epochs = descend(s, 7);
    CHECK(by_epochs.report.steps == 10);
    CHECK(by_epochs.moved == Approx(expected(schedule, 10)).epsilon(1e-5));
    CHECK(by_epochs.report.by_epoch.back().learning_rate == by_epochs.report.learning_rate);
  }
}

TEST_CASE("cycle: runs that end by time or never") {
  RunSettings s = settings(1);
  s.schedule = "linear";
  s.seconds = 1;
  const Descent timed = descend(s);
  CHECK(timed.report.steps > 1);
  CHECK(timed.report.learning_rate < 0.5);
  CHECK(timed.moved < 0.5 * static_cast<double>(timed.report.steps));
  s.seconds.reset();
  s.until = {"loss<0"};
  CHECK(message_of([&] { descend(s); }) ==
        "schedule 'linear(warmup=0, final=0)' depends on the length of the run, which is not known\n"
        "give steps, epochs or for, e.g. --steps 1000; 'constant' and 'step(every=1000)' need no end");
  s.until.clear();
  s.schedule = "linear(warmup=50)";
  s.steps = 3;
  CHECK(descend(s).report.notes ==
        std::vector<std::string>{"the run of 3 steps ends within the schedule's warmup of 50"});
}

TEST_CASE("clipping: limits the update, flags override the file, 0 disables it") {
  RunSettings s = settings(1);
  s.steps = 4;
  const auto moved = [&](std::optional<double> clip, std::optional<double> clip_value) {
    s.clip = clip;
    s.clip_value = clip_value;
    return descend(s).moved;
  };
  CHECK(moved({}, {}) == Approx(2));
  CHECK(moved(0.25, {}) == Approx(0.5).epsilon(1e-4));
  CHECK(moved({}, 0.5) == Approx(1));
  CHECK(moved(0.125, 0.5) == Approx(0.25).epsilon(1e-4));
  auto g = graph_of(R"hmx(harmonic g { producer x {1}; producer y {1}; layer o {1};
    cycle (clip=0.5, clip_value=0.25, accumulate=3, schedule="cosine(warmup=2)") { x -> o; o <- y; } })hmx");
  ResolvedSettings from_file = g->settings(0, {});
  CHECK(from_file.training() ==
        "adamw(lr=0.001, beta1=0.9, beta2=0.999, epsilon=1e-08, weight_decay=0.01), schedule cosine(warmup=2, "
        "final=0), clip 0.5, clip_value 0.25, 3 batches per step");
  RunSettings flags;
  flags.clip = 0;
  flags.clip_value = 4;
  flags.accumulate = 1;
  flags.schedule = "constant";
  flags.optimizer = "lion";
  CHECK(g->settings(0, flags).training() == "lion(lr=0.0001, beta1=0.9, beta2=0.99, weight_decay=0), clip_value 4");
  flags.clip = -1;
  CHECK(message_of([&] { g->settings(0, flags); }) ==
        "clip and clip_value cannot be negative\n"
        "give a number above 0, or 0 for no clipping");
}

TEST_CASE("cycles: the second may have another optimizer") {
  auto g = graph_of(R"hmx(harmonic g {
    producer x {3}; producer y {2}; layer h {4}; layer o {2};
    x -(tanh)-> h -> o;
    cycle (steps 2, optimizer="adamw") { o <- y; }
    cycle (steps 2, optimizer="normuon") { o <- y; }
    cycle (steps 2, optimizer="rmsprop(momentum=0.5, centered=true)", accumulate=2) { o <- y; }
  })hmx");
  bind_rows(*g, "x", {3}, numbers(24));
  bind_rows(*g, "y", {2}, numbers(16));
  for (int cycle = 0; cycle < 3; ++cycle) CHECK(CycleRuntime(*g, cycle, settings(2)).run().steps == 2);
}

TEST_CASE("optimizers: moments of 16 and 8 bits reach the loss of 32 bits after 2000 steps") {
  const char* flow = R"(harmonic g {
    producer x {6}; producer y {3}; layer h {72}; layer k {64}; layer o;
    cycle { x -(tanh)-> h -(tanh)-> k -> o; o <-(cross_entropy)- y; } })";
  const auto loss = [&](const std::string& optimizer) {
    RunSettings s;
    s.batch = 16, s.steps = 2000, s.seed = 1, s.optimizer = optimizer;
    return train(flow, 160, s).report.loss;
  };
  for (const std::string optimizer :
       {"adamw(lr=0.001", "adam(lr=0.001", "lion(lr=0.0003", "sgd(lr=0.05, momentum=0.9"}) {
    const double exact = loss(optimizer + ")");
    INFO(optimizer);
    CHECK(exact < 0.9);  // the loss of equal probabilities is log(3)
    for (const char* moments : {", moments=bf16)", ", moments=q8)"}) {
      INFO(moments);
      CHECK(loss(optimizer + moments) == Approx(exact).epsilon(0.1).margin(0.02));
    }
  }
}

TEST_CASE("normuon: orthogonalises hidden matrices, uses adamw for tables, outputs and vectors") {
  auto g = graph_of(R"hmx(harmonic g {
    producer words {*, 11};
    layer e {*, 4}; layer h {*, 6}; layer o {*, 11};
    cycle (optimizer="normuon") { words -(embed)-> e -(norm, affine)-> h -> o; o <-(next_token)- words; }
  })hmx");
  bind_rows<int32_t>(*g, "words", {5}, std::vector<int32_t>(50, 3), 11);
  LoweringOptions o;
  o.batch = 2;
  o.optimizer = parse_optimizer("normuon");
  const Lowered lowered = g->lower(o);
  std::vector<std::string> hidden;
  for (const TrainedParameter& p : lowered.trained)
    if (update_rule(o.optimizer, g->store().find(p.name)->type, p.hidden).functional == "normuon")
      hidden.push_back(p.name);
  CHECK(hidden == std::vector<std::string>{"e.h.affine.weight"});
  size_t adamw = 0, normuon = 0;
  for (const Node& n : lowered.program.nodes) adamw += n.callee == "adamw", normuon += n.callee == "normuon";
  CHECK(normuon == 1);
  CHECK(adamw + normuon == lowered.trained.size());
}

TEST_CASE("optimizers: each one learns, with and without accumulation and clipping") {
  for (const NamedRow& row : optimizer_rows())
    for (const bool gathered : {false, true}) {
      RunSettings s = settings(8);
      s.optimizer = std::string(row.name) + (row.name == "sgd" ? "(lr=1)" : "(lr=0.02)");
      s.epochs = 150;
      if (gathered) s.accumulate = 2, s.clip = 1.0;
      const Outcome o = train(kTanhNet, 24, s);
      INFO(*s.optimizer << " " << gathered);
      CHECK(o.report.by_epoch.back().loss < 0.8 * o.report.by_epoch.front().loss);
    }
}

TEST_CASE("test-then-train: every batch is predicted before it is learned") {
  constexpr const char* kTanhNet =
      "harmonic g { producer x {4}; producer y; layer o {3}; cycle { x -> o; o <-(cross_entropy)- y; } }";
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 300; ++i) labels.push_back(i * 7 % 3);
  const auto bound = [&] {
    auto g = graph_of(kTanhNet);
    bind_rows(*g, "x", {4}, numbers(4 * 300));
    bind_rows<int64_t>(*g, "y", {}, labels, 3);
    return g;
  };
  RunSettings s = settings(10);
  s.epochs = 1;
  s.shuffle = false;
  s.lr = 0.05;
  // Evaluates each batch separately, with the weights of the steps before it.
  std::vector<double> loss, right;
  for (int64_t step = 0; step < 12; ++step) {
    auto g = bound();
    if (step > 0) {
      RunSettings before = s;
      before.steps = step;
      CycleRuntime(*g, 0, before).run();
    }
    const std::vector<float> x = numbers(4 * 300);
    bind_test(*g, "x", {4}, std::vector<float>(x.begin() + 40 * step, x.begin() + 40 * (step + 1)));
    bind_test<int64_t>(*g, "y", {}, std::vector<int64_t>(labels.begin() + 10 * step, labels.begin() + 10 * (step + 1)),
                       3);
    const Evaluation e = evaluate(*g, 0, g->test_streams(), s);
    loss.push_back(e.loss);
    right.push_back(e.accuracy);
  }
  auto g = bound();
  s.window = 35;  // holds three batches of ten
  s.steps = 12;
  CycleRuntime runtime(*g, 0, s);
  int64_t seen = 0;
  runtime.on_step(1, [&](const StepReport& r) {
    const auto n = static_cast<size_t>(std::min<int64_t>(r.step, 3));
    double mean_loss = 0, mean_right = 0;
    for (size_t i = 0; i < n; ++i)
      mean_loss += loss[static_cast<size_t>(r.step) - 1 - i] / static_cast<double>(n),
          mean_right += right[static_cast<size_t>(r.step) - 1 - i] / static_cast<double>(n);
    CHECK(r.metrics.at("window.loss") == Approx(mean_loss).epsilon(1e-4));
    CHECK(r.metrics.at("window.o.accuracy") == Approx(mean_right).epsilon(1e-6));
    ++seen;
  });
  runtime.run();
  CHECK(seen == 12);
}

TEST_CASE("window: restored from a checkpoint unchanged") {
  const auto step = [](double sum, double samples) { return StepSums{sum, samples, samples, samples}; };
  SampleWindow a(100), b(100);
  for (int i = 1; i < 1000; ++i) {
    a.add(step(i, 1 + i % 7));
    if (i == 500) b.restore(a.state());
    if (i > 500) b.add(step(i, 1 + i % 7));
  }
  CHECK(a.mean() == Approx(b.mean()).epsilon(1e-12));
  CHECK(a.samples() == b.samples());
  CHECK(a.samples() <= 100);
  CHECK(a.samples() > 90);
  SampleWindow large(3);
  large.add(step(50, 10));
  large.add(step(100, 10));
  CHECK(large.mean() == 10);
  CHECK(large.samples() == 10);
}
