// Cycles over streams in memory: learning, measuring and delivering, and their ends.
#include <catch2/catch.hpp>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "engine/flow/metrics.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr const char* kLine = R"(harmonic line {
  producer x {2}; producer y {1}; layer o {1}; consumer c;
  cycle { x -> o -> c; o <-(mse)- y; }
})";

// y = 3 a - 2 b + 0.5
void bind_line(BoundGraph& g, size_t n) {
  const std::vector<float> x = numbers(2 * n);
  std::vector<float> y;
  for (size_t i = 0; i < n; ++i) y.push_back(3 * x[2 * i] - 2 * x[2 * i + 1] + 0.5f);
  bind_rows(g, "x", {2}, x);
  bind_rows(g, "y", {1}, y);
}

}  // namespace

TEST_CASE("cycle: a line is learned exactly") {
  auto g = graph_of(kLine);
  bind_line(*g, 100);
  RunSettings s = settings(10);
  s.epochs = 100;
  s.optimizer = "sgd(lr=0.1)";
  const CycleReport r = CycleRuntime(*g, 0, s).run();
  CHECK(r.epochs == 100);
  CHECK(r.steps == 1000);
  CHECK(r.samples == 10000);
  CHECK(r.stopped_by == "epochs");
  CHECK(r.loss < 1e-10);
  const std::vector<float> w = weights(*g, "x.o.affine.weight");
  CHECK(w[0] == Approx(3).margin(1e-4));
  CHECK(w[1] == Approx(-2).margin(1e-4));
  CHECK(weights(*g, "x.o.affine.bias")[0] == Approx(0.5).margin(1e-4));
}

TEST_CASE("taps: gradients of several taps add up with their weights") {
  auto g = graph_of(R"(harmonic g {
    producer x {1}; producer y {1}; producer z {1}; layer o {1};
    cycle { x -> o; o <-(mse(weight=0.5))- y; o <-(mse)- z; }
  })");
  bind_rows<float>(*g, "x", {1}, {1, 2});
  bind_rows<float>(*g, "y", {1}, {1, 5});
  bind_rows<float>(*g, "z", {1}, {-3, 0});
  declare(*g);
  set_weights(*g, "x.o.affine.weight", {2});
  set_weights(*g, "x.o.affine.bias", {1});
  RunSettings s = settings(2);
  s.steps = 1;
  s.optimizer = "sgd(lr=0.25)";
  const CycleReport r = CycleRuntime(*g, 0, s).run();
  // o = 3, 5; against y: 2, 0; against z: 6, 5. Loss 0.5 * 4/2 + 61/2; gradient for w: (0.5*2*2*1 + 2*6*1 + 2*5*2) /
  // 2 = 17, for b: (2 + 12 + 10) / 2 = 12.
  CHECK(r.loss == Approx(1 + 30.5));
  CHECK(r.metrics.at("o.loss") == Approx(31.5));
  CHECK(weights(*g, "x.o.affine.weight")[0] == Approx(2 - 0.25 * 17));
  CHECK(weights(*g, "x.o.affine.bias")[0] == Approx(1 - 0.25 * 12));
}

TEST_CASE("taps: two taps of classes on one layer count its accuracy once") {
  auto g = graph_of(R"(harmonic g {
    producer x {2}; producer a {2}; producer b {2}; layer o {2};
    cycle { x -> o; o <-(cross_entropy)- a; o <-(cross_entropy)- b; }
  })");
  for (const bool test : {false, true}) {
    const auto put = [&](const char* name, auto sample, auto values) {
      test ? bind_test(*g, name, sample, values) : bind_rows(*g, name, sample, values);
    };
    put("x", Shape{2}, std::vector<float>{1, 0, 0, 1, 1, 0});
    put("a", Shape{}, std::vector<uint8_t>{0, 1, 1});
    put("b", Shape{}, std::vector<uint8_t>{1, 1, 1});
  }
  declare(*g);
  set_weights(*g, "x.o.affine.weight", {1, 0, 0, 1});
  set_weights(*g, "x.o.affine.bias", {0, 0});
  const Evaluation e = evaluate(*g, 0, g->test_streams(), settings(3));
  const double right = -std::log(std::exp(1.0) / (std::exp(1.0) + 1)), wrong = -std::log(1 / (std::exp(1.0) + 1));
  CHECK(e.accuracy == Approx(2.0 / 3));
  CHECK(e.loss == Approx((3 * right + 3 * wrong) / 3));
  RunSettings s = settings(3);
  s.steps = 1;
  CHECK(CycleRuntime(*g, 0, s).run().accuracy == Approx(2.0 / 3));
}

TEST_CASE("two classes: one output, and accuracy is counted at one half") {
  auto g = graph_of(R"(harmonic g {
    producer x {1}; producer y {1}; layer o {1};
    cycle { x -(sigmoid)-> o; o <-(binary_cross_entropy)- y; }
  })");
  bind_rows<float>(*g, "x", {1}, {-2, -1, 1, 2});
  bind_rows<uint8_t>(*g, "y", {}, {0, 1, 1, 1});
  bind_test<float>(*g, "x", {1}, {-2, -1, 1, 2});
  bind_test<uint8_t>(*g, "y", {}, {0, 1, 1, 1});
  declare(*g);
  set_weights(*g, "x.o.affine.weight", {1});
  set_weights(*g, "x.o.affine.bias", {0});
  const Evaluation e = evaluate(*g, 0, g->test_streams(), settings(4));
  CHECK(e.accuracy == Approx(0.75));
  CHECK(e.loss == Approx((std::log1p(std::exp(-2.0)) + std::log1p(std::exp(1.0)) + std::log1p(std::exp(-1.0)) +
                          std::log1p(std::exp(-2.0))) /
                         4));
}

TEST_CASE("ignored class: its positions count in neither loss nor accuracy") {
  auto g = graph_of(R"(harmonic g {
    producer x {2}; producer y {2}; layer o {2};
    cycle { x -> o; o <-(cross_entropy(ignore_index=-100))- y; }
  })");
  for (const bool test : {false, true}) {
    const auto put = [&](const char* name, auto sample, auto values) {
      test ? bind_test(*g, name, sample, values) : bind_rows(*g, name, sample, values);
    };
    put("x", Shape{2}, std::vector<float>{1, 0, 0, 1, 1, 0, 1, 0});
    put("y", Shape{}, std::vector<int32_t>{0, -100, 1, -100});
  }
  declare(*g);
  set_weights(*g, "x.o.affine.weight", {1, 0, 0, 1});
  set_weights(*g, "x.o.affine.bias", {0, 0});
  const Evaluation e = evaluate(*g, 0, g->test_streams(), settings(4));
  const double right = -std::log(std::exp(1.0) / (std::exp(1.0) + 1)), wrong = -std::log(1 / (std::exp(1.0) + 1));
  CHECK(e.accuracy == Approx(0.5));
  CHECK(e.loss == Approx((right + wrong) / 2));
}

TEST_CASE("evaluation: equals the hand computation for any batch size") {
  auto g = graph_of(kLine);
  bind_line(*g, 10);
  bind_test<float>(*g, "x", {2}, {1, 0, 0, 1, 1, 1, 2, 2, 0, 0});
  bind_test<float>(*g, "y", {1}, {1, 2, 3, 4, 5});
  declare(*g);
  set_weights(*g, "x.o.affine.weight", {1, -1});
  set_weights(*g, "x.o.affine.bias", {2});
  // o = 3, 1, 2, 2, 2; errors 2, -1, -1, -2, -3: squares 4 + 1 + 1 + 4 + 9
  for (int64_t batch : {1, 2, 3, 5, 64}) {
    const Evaluation e = evaluate(*g, 0, g->test_streams(), settings(batch));
    CHECK(e.loss == Approx(19.0 / 5));
    CHECK(e.samples == 5);
    CHECK(e.accuracy == -1);
  }
}

TEST_CASE("evaluation: test samples of another shape are refused") {
  auto g = graph_of(R"(harmonic g { producer x; producer y {1}; layer o; cycle { x -> o; o <- y; } })");
  bind_rows(*g, "x", {4}, numbers(16));
  bind_rows(*g, "y", {1}, numbers(4));
  bind_test(*g, "x", {2}, numbers(8));
  bind_test(*g, "y", {1}, numbers(4));
  CHECK(message_of([&] {
          evaluate(*g, 0, g->test_streams(), settings());
        }).find("the test samples of 'x' are f32[2], but the graph was trained on f32[4]") == 0);
}

TEST_CASE("labels: a value that is not a class is an error that names it") {
  const auto run = [](auto labels, int64_t classes) {
    auto g = graph_of(
        R"(harmonic g { producer x {1}; producer y {3}; layer o {3}; cycle { x -> o; o <-(cross_entropy)- y; } })");
    bind_rows(*g, "x", {1}, numbers(4));
    bind_rows(*g, "y", {}, labels, classes);
    return message_of([&] { CycleRuntime(*g, 0, settings(2)).run(); });
  };
  CHECK(run(std::vector<uint8_t>{0, 1, 2, 2}, 0) == "no error");
  CHECK(run(std::vector<uint8_t>{0, 1, 3, 2}, 0)
            .find("stream 'y' holds 3, but the graph knows 3 classes, numbered from 0 to 2") == 0);
  CHECK(run(std::vector<int64_t>{0, 1, -1, 2}, 0).find("stream 'y' holds -1") == 0);
  CHECK(run(std::vector<int64_t>{0, 1, (int64_t{1} << 32) + 1, 2}, 0).find("stream 'y' holds 4294967297") == 0);
  CHECK(run(std::vector<int8_t>{0, 1, 2, -128}, 3).find("stream 'y' holds -128") == 0);
  CHECK(run(std::vector<uint8_t>{0, 1, 2, 2}, 4).find("producer 'y' is declared with 3 classes, its source has 4") ==
        0);
}

TEST_CASE("embedding: unknown symbols are an error") {
  auto g = graph_of(
      R"(harmonic g { producer x; producer y {1}; layer e; layer o; cycle { x -(embed(2, vocabulary=5))-> e -> o; )"
      R"(o <- y; } })");
  bind_rows<int32_t>(*g, "x", {}, {0, 4, 5, 1});
  bind_rows(*g, "y", {1}, numbers(4));
  CHECK(message_of([&] {
          CycleRuntime(*g, 0, settings(4)).run();
        }).find("stream 'x' holds 5, but the graph knows 5 classes") == 0);
}

TEST_CASE("labels: columns of one number are classes") {
  auto g = graph_of(
      R"(harmonic g { producer x {1}; producer y {2}; layer o {2}; cycle { x -> o; o <-(cross_entropy)- y; } })");
  bind_rows<float>(*g, "x", {1}, {-1, 1, -1, 1});
  bind_rows<int64_t>(*g, "y", {1}, {0, 1, 0, 1});
  RunSettings s = settings(4);
  s.epochs = 200;
  s.lr = 0.1;
  CHECK(CycleRuntime(*g, 0, s).run().accuracy == 1);
}

TEST_CASE("cycle: a non-finite loss changes no weight, and the first bad layer is named") {
  auto g = graph_of(R"hmx(harmonic g {
    producer x {4}; producer y {2}; layer h {8}; layer n {8}; layer o {2};
    cycle { x -(relu)-> h -(norm(kind="batch"), relu)-> n -> o; o <-(mse)- y; }
  })hmx");
  bind_rows(*g, "x", {4}, numbers(64));
  bind_rows(*g, "y", {2}, numbers(32));
  RunSettings s = settings(16);
  s.steps = 1;
  CycleRuntime(*g, 0, s).run();
  std::vector<float> w = weights(*g, "h.n.norm.gain");
  w[3] = std::numeric_limits<float>::infinity();
  SECTION("by its weights") {
    set_weights(*g, "h.n.norm.gain", w);
    const std::string said = message_of([&] { CycleRuntime(*g, 0, s).run(); });
    INFO(said);
    CHECK(said.find("first not finite: layer 'n', sample ") != std::string::npos);
    CHECK(said.find("'h.n.norm.gain' was not finite in the graph already") != std::string::npos);
  }
  SECTION("by the data") {
    std::vector<float> x = numbers(64);
    x[41] = std::numeric_limits<float>::quiet_NaN();
    bind_rows(*g, "x", {4}, x);
    s.shuffle = false;
    const std::string before = learned_bytes(*g);
    const std::string said = message_of([&] { CycleRuntime(*g, 0, s).run(); });
    INFO(said);
    CHECK(said.find("first not finite: producer 'x', sample 10 of the batch") != std::string::npos);
    CHECK(said.find("the weights are those after step 0, all finite") != std::string::npos);
    CHECK((learned_bytes(*g) == before));
  }
}

TEST_CASE("consumers: receive every sample in order, in inference and training") {
  for (const int threads : {1, 2})
    for (const bool trains : {false, true}) {
      auto g = graph_of(std::string("harmonic g { producer x {1}; layer o {1}; consumer c; producer y {1}; cycle "
                                    "(steps 1000000) { x -(affine(1))-> o -> c;") +
                        (trains ? "o <- y;" : "") + "} }");
      constexpr size_t kSamples = 4000;
      std::vector<float> x;
      for (size_t i = 0; i < kSamples; ++i) x.push_back(static_cast<float>(i));
      bind_rows(*g, "x", {1}, x);
      if (trains) bind_rows(*g, "y", {1}, x);
      declare(*g);
      set_weights(*g, "x.o.affine.weight", {1});
      set_weights(*g, "x.o.affine.bias", {0});
      const auto kept = keep(*g, "c");
      RunSettings s = settings(3);
      s.threads = threads;
      s.epochs = 1;
      s.shuffle = false;
      s.optimizer = "sgd(lr=0)";
      const CycleReport r = CycleRuntime(*g, 0, s).run();
      CHECK(r.samples == kSamples);
      CHECK(r.epochs == 1);
      CHECK((kept->values == x));
    }
}

TEST_CASE("consumers: a stream connected directly arrives unchanged") {
  auto g = graph_of("harmonic g { producer x {2}; consumer c; cycle { x -> c; } }");
  const std::vector<float> x = numbers(14);
  bind_rows(*g, "x", {2}, x);
  const auto kept = keep(*g, "c");
  CycleRuntime(*g, 0, settings(3)).run();
  CHECK((kept->values == x));
}

TEST_CASE("cycle: stop() from another thread ends the run") {
  auto g = graph_of(kLine);
  bind_line(*g, 100);
  RunSettings s = settings(10);
  s.seconds = 60;
  CycleRuntime runtime(*g, 0, s);
  std::atomic<int64_t> steps{0};
  runtime.on_epoch([&](const EpochReport& e, const Progress&) { steps += e.steps; });
  std::thread stopper([&] {
    while (steps < 50) std::this_thread::yield();
    runtime.stop();
  });
  const CycleReport r = runtime.run();
  stopper.join();
  CHECK(r.stopped_by == "interrupt");
  CHECK(r.steps >= 50);
  CHECK(r.seconds < 30);
}

TEST_CASE("cycle: an exception of a producer names it and ends the threads") {
  for (const int threads : {1, 2}) {
    auto g = graph_of(kLine);
    bind_line(*g, 100);
    auto bad = std::make_shared<Rows<float>>(Shape{1}, numbers(100));
    bad->on_sample = [](size_t i) {
      if (i == 57) throw Error(ErrorKind::Stream, "the disk is gone");
    };
    bind_producer(*g, "y", bad);
    RunSettings s = settings(10);
    s.threads = threads;
    s.shuffle = false;
    const std::string said = message_of([&] { CycleRuntime(*g, 0, s).run(); });
    CHECK(said.find("'y'") != std::string::npos);
    CHECK(said.find("the disk is gone") != std::string::npos);
  }
}

TEST_CASE("cycle: results do not depend on the number of threads") {
  std::string first;
  for (const int threads : {1, 2, 2}) {
    auto g = graph_of(R"(harmonic g {
      producer x {6}; producer y {3}; layer h {16}; layer o;
      cycle (epochs 3) { x -(relu, dropout(0.2))-> h -> o; o <-(cross_entropy)- y; }
    })");
    bind_rows(*g, "x", {6}, numbers(6 * 100));
    std::vector<uint8_t> labels;
    for (int i = 0; i < 100; ++i) labels.push_back(static_cast<uint8_t>(i * 7 % 3));
    bind_rows(*g, "y", {}, labels);
    RunSettings s = settings(16);
    s.threads = threads;
    CycleRuntime(*g, 0, s).run();
    if (first.empty()) first = learned_bytes(*g);
    CHECK((learned_bytes(*g) == first));
  }
}

TEST_CASE("evaluation: dropout is off and running statistics are used") {
  auto g = graph_of(R"hmx(harmonic g {
    producer x {1}; producer y {1}; layer n; layer o {1};
    cycle { x -(norm(kind="batch"), dropout(0.5))-> n -(affine(1))-> o; o <-(mse)- y; }
  })hmx");
  bind_rows<float>(*g, "x", {1}, {2, 4, 6, 8});
  bind_rows<float>(*g, "y", {1}, {0, 0, 0, 0});
  bind_test<float>(*g, "x", {1}, {2, 4, 6, 8});
  bind_test<float>(*g, "y", {1}, {0, 0, 0, 0});
  RunSettings s = settings(4);
  s.steps = 1;
  s.optimizer = "sgd(lr=0)";
  CycleRuntime(*g, 0, s).run();
  double mean = 0, variance = 0;
  for (const auto& [name, t] : g->store().all()) {
    if (t.role != Role::state) continue;
    (name.find("mean") != std::string::npos ? mean : variance) = *static_cast<const float*>(t.storage->data());
  }
  CHECK(mean == Approx(0.1 * 5));                     // momentum 0.1, initially 0
  CHECK(variance == Approx(0.9 * 1 + 0.1 * 20 / 3));  // initially 1; unbiased
  set_weights(*g, "n.o.affine.weight", {1});
  set_weights(*g, "n.o.affine.bias", {0});
  double expected = 0;
  for (const double x : {2, 4, 6, 8}) expected += (x - mean) * (x - mean) / (variance + 1e-5) / 4;
  CHECK(evaluate(*g, 0, g->test_streams(), s).loss == Approx(expected));
  CHECK(evaluate(*g, 0, g->test_streams(), settings(1)).loss == Approx(expected));
}

TEST_CASE("cycle: conditions apply without a tap") {
  const auto report = [](
                          const std::string& conditions,
                          const std::function<void(RunSettings&)>& change = [](RunSettings&) {}) {
    auto g = graph_of("harmonic g { producer x {2}; layer o {1}; cycle " + conditions + " { x -> o; } }");
    bind_rows<float>(*g, "x", {2}, numbers(20));
    RunSettings s = settings(4);
    change(s);
    return CycleRuntime(*g, 0, s).run();
  };
  CHECK(report("").samples == 10);
  CHECK(report("(epochs 3)").samples == 30);
  CHECK(report("(steps 7)").steps == 7);
  CHECK(report("(steps 7)").stopped_by == "steps");
  CHECK(report("(steps 7, epochs 1)").steps == 3);
  CHECK(report("", [](RunSettings& s) { s.steps = 5; }).steps == 5);
  const CycleReport timed = report("(for 20ms)");
  CHECK(timed.stopped_by == "for");
  CHECK(timed.seconds >= 0.02);
  const CycleReport until = report("(until loss < 0.1)");
  CHECK(until.samples == 10);
  REQUIRE(until.notes.size() == 1);
  CHECK(until.notes[0].find("'until' tests training metrics") == 0);
}

TEST_CASE("streams: the shortest ends the pass unless the cycle refuses different lengths") {
  const auto report = [](const std::string& conditions) {
    auto g = graph_of("harmonic g { producer x {1}; producer y {1}; layer o {1}; cycle " + conditions +
                      " { x -> o; o <- y; } }");
    bind_rows<float>(*g, "x", {1}, numbers(20));
    bind_rows<float>(*g, "y", {1}, numbers(17));
    return CycleRuntime(*g, 0, settings(4)).run();
  };
  const CycleReport r = report("(epochs 2)");
  CHECK(r.samples == 34);
  CHECK(r.epochs == 2);
  REQUIRE(r.left_over.size() == 1);
  CHECK(r.left_over[0].producer == "x");
  CHECK(r.left_over[0].samples == 3);
  CHECK(r.notes ==
        std::vector<std::string>{
            "streams of different length: 'x' has 20 samples, 'y' has 17 samples; a pass ends with the shortest",
            "producer 'x' had 3 samples left over at the end of a pass: 'y' ended after 17"});
  CHECK(message_of([&] { report("(unpaired=\"refuse\")"); }).find("they do not belong together") != std::string::npos);
  CHECK(message_of([&] { report("(unpaired=\"never\")"); }).find("'unpaired' must be") != std::string::npos);
}

TEST_CASE("noise: repeats for its seed, is off in evaluation, and passes gradients") {
  const auto trained = [](const std::string& functions, uint64_t seed, const std::string& loss) {
    auto g = graph_of("harmonic g { producer x {2}; producer y {1}; layer h {3}; layer o {1}; cycle { x -(affine" +
                      functions + ")-> h -> o; o <-(" + loss + ")- y; } }");
    bind_rows<float>(*g, "x", {2}, {2, 4, 6, 8, 1, 3});
    bind_rows<float>(*g, "y", {1}, {1000, 1000, 1000});
    bind_test<float>(*g, "x", {2}, {2, 4, 6, 8, 1, 3});
    bind_test<float>(*g, "y", {1}, {1000, 1000, 1000});
    RunSettings s = settings(3);
    s.steps = 1;
    s.optimizer = "sgd(lr=0.01)";
    s.seed = static_cast<int64_t>(seed);
    CycleRuntime(*g, 0, s).run();
    return g;
  };
  CHECK(learned_bytes(*trained(", noise(0.5)", 1, "mse")) == learned_bytes(*trained(", noise(0.5)", 1, "mse")));
  CHECK(learned_bytes(*trained(", noise(0.5)", 1, "mse")) != learned_bytes(*trained("", 1, "mse")));
  // The target is far away, so the gradient of mae is constant for every noise.
  const auto weight = [](BoundGraph& g, const char* name) {
    return *static_cast<const float*>(g.store().find(name)->storage->data());
  };
  for (const char* name : {"x.h.affine.bias", "x.h.affine.weight"})
    CHECK(weight(*trained(", noise(0.5)", 1, "mae"), name) == weight(*trained("", 1, "mae"), name));
  auto g = trained(", noise(0.5)", 1, "mse");
  const double loss = evaluate(*g, 0, g->test_streams(), settings(3)).loss;
  CHECK(evaluate(*g, 0, g->test_streams(), settings(3)).loss == loss);
}

TEST_CASE("conditions: those that can never hold are errors") {
  const auto run = [](const std::string& until) {
    auto g = graph_of(kLine);
    bind_line(*g, 10);
    RunSettings s = settings(5);
    s.until = {until};
    return message_of([&] { CycleRuntime(*g, 0, s).run(); });
  };
  CHECK(run("los<1").find("unknown metric 'los'") == 0);
  CHECK(run("o.accuracy>0.9").find("'until o.accuracy' can never hold: this cycle does not measure 'o.accuracy'") == 0);
  CHECK(run("loss<nan").find("'loss<nan' is not a condition") == 0);
  CHECK(run("loss<1e9") == "no error");
  CHECK(run("rmse<1").find("'until rmse' can never hold: this cycle does not measure 'rmse'\nit measures loss, "
                           "o.loss\nrequest it with --metric 'rmse'") == 0);
  CHECK(run("val.loss<1") ==
        "'until val.loss' can never hold: there is no validation data\ngive it: --validate NAME=ADDRESS for every "
        "producer");
  const auto decides = [](const std::string& condition) {
    auto g = graph_of("harmonic g { producer x {3}; producer y {1}; layer h {2}; layer o {1}; cycle { x -> h; if " +
                      condition + " { h -(tanh)-> o; } else { h -(relu)-> o; } o <-(mse)- y; } }");
    bind_rows(*g, "x", {3}, numbers(30));
    bind_rows(*g, "y", {1}, numbers(10));
    return message_of([&] { CycleRuntime(*g, 0, settings(5)).run(); });
  };
  CHECK(decides("loss < 0.5") == "no error");
  CHECK(decides("val.loss < 0.5")
            .find("'if val.loss' can never hold: there is no validation data\ngive it: --validate NAME=ADDRESS for "
                  "every producer") != std::string::npos);
  CHECK(decides("mae < 0.5").find("'if mae' can never hold: this cycle does not measure 'mae'") != std::string::npos);
  CHECK(decides("o.mae < 0.5").find("request it with --metric 'mae'") != std::string::npos);
  CHECK(decides("o.accuracy < 0.5").find("'if o.accuracy' can never hold: this cycle does not measure 'o.accuracy'") !=
        std::string::npos);
  CHECK(message_of([] {
          graph_of(
              "harmonic g { producer x {1}; producer y {1}; layer o {1}; cycle (until foo < 1) { x -> o; o <- y; } }");
        }).find("unknown metric 'foo'") != std::string::npos);
}

TEST_CASE("settings: limits of steps, epochs and batches") {
  auto g = graph_of(kLine);
  bind_line(*g, 7);
  RunSettings s = settings(5);
  s.steps = 0;
  CHECK(CycleRuntime(*g, 0, s).run().steps == 0);
  s.steps = 3;
  const CycleReport r = CycleRuntime(*g, 0, s).run();
  CHECK(r.steps == 3);
  CHECK(r.samples == 12);  // 5 + 2, 5
  CHECK(r.epochs == 1);
  CHECK(r.stopped_by == "steps");
  s.steps.reset();
  s.epochs = 0;
  CHECK(CycleRuntime(*g, 0, s).run().steps == 0);
  s.epochs = 2;
  s.batch = int64_t{1} << 40;  // no more memory is allocated than the samples need
  CHECK(CycleRuntime(*g, 0, s).run().steps == 2);
  s.batch = 0;
  CHECK(message_of([&] { CycleRuntime(*g, 0, s).run(); }).find("a batch of 0 samples is not possible") == 0);
}

TEST_CASE("live stream: trains until the stream ends") {
  auto g = graph_of(kLine);
  bind_producer(*g, "x", Rows<float>({2}, numbers(46)).live());
  bind_producer(*g, "y", Rows<float>({1}, numbers(23)).live());
  const CycleReport r = CycleRuntime(*g, 0, settings(5)).run();
  CHECK(r.samples == 23);
  CHECK(r.steps == 5);
  CHECK(r.stopped_by == "end of streams");
}

TEST_CASE("deterministic: live streams, a time limit and a return to checkpoints are refused") {
  auto g = graph_of(kLine);
  bind_producer(*g, "x", Rows<float>({2}, numbers(46)).live());
  bind_producer(*g, "y", Rows<float>({1}, numbers(23)).live());
  RunSettings s = settings(5);
  s.deterministic = true;
  CHECK_THROWS_WITH(CycleRuntime(*g, 0, s).run(),
                    "a deterministic run cannot read the live stream 'x': arrival times vary");
  s.seconds = 1;
  CHECK_THROWS_WITH(CycleRuntime(*g, 0, s).run(),
                    "a deterministic run cannot end by a time limit: the number of steps until then varies");
  s.seconds.reset();
  s.guard = parse_loss_guard("deviations=6, then=checkpoint");
  CHECK_THROWS_WITH(CycleRuntime(*g, 0, s).run(),
                    "a deterministic run cannot return to its last checkpoint: when it is written varies");
}

TEST_CASE("inference: a stream of unknown length is read once") {
  auto g = graph_of("harmonic g { producer x {1}; layer o {1}; cycle { x -(affine(1))-> o; } }");
  auto rows = std::make_shared<Rows<float>>(Shape{1}, numbers(10));
  rows->hides_size = true;
  bind_producer(*g, "x", rows);
  const auto kept = keep(*g, "");
  CHECK(CycleRuntime(*g, 0, settings(4)).run().samples == 10);
  CHECK(kept->samples == 10);
}

TEST_CASE("conditions: both branches may drive a layer, and each trains when it is active") {
  auto g = graph_of(R"(harmonic g {
    producer x {1}; producer y {1}; layer h {1}; layer o {1}; consumer c;
    cycle (steps 6) {
      if loss < 1000000 { x -(affine(1))-> h; h -> c; } else { x -(affine(1, name="first"), affine(1))-> h; }
      h -(affine(1))-> o; o <- y;
    }
  })");
  bind_rows(*g, "x", {1}, numbers(4));
  bind_rows(*g, "y", {1}, numbers(4, 9));
  const auto kept = keep(*g, "c");
  RunSettings s = settings(2);
  const CycleReport r = CycleRuntime(*g, 0, s).run();
  CHECK(r.steps == 6);
  CHECK(kept->samples == 10);  // all except the first step's
}

TEST_CASE("cycles: the second keeps the weights and restarts its optimizer") {
  auto g = graph_of(R"hmx(harmonic g {
    producer x {1}; producer y {1}; layer o {1};
    cycle (steps 3, optimizer="adam(lr=0.1)") { x -> o; o <- y; }
    cycle (steps 1, optimizer="adam(lr=0.1)") { x -> o; o <- y; }
  })hmx");
  bind_rows<float>(*g, "x", {1}, {1});
  bind_rows<float>(*g, "y", {1}, {-50});
  CycleRuntime(*g, 0, settings(1)).run();
  const float before = weights(*g, "x.o.affine.weight")[0];
  CycleRuntime(*g, 1, settings(1)).run();
  CHECK(before - weights(*g, "x.o.affine.weight")[0] ==
        Approx(0.1).epsilon(1e-3));  // the length of Adam's first step is lr
}
