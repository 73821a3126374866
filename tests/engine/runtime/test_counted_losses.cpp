// Positions of an ignored class count in no mean: of a batch, step, epoch, window or test.
#include <catch2/catch.hpp>

#include <cmath>

#include <boost/json.hpp>

#include "engine/checkpoint/record_state.hpp"
#include "engine/checkpoint/state_fields.hpp"
#include "engine/flow/metrics.hpp"
#include "engine/measure/evaluate.hpp"
#include "tests/engine/runtime/memory_streams.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr const char* kOne = R"(harmonic g {
  producer x {2}; producer y {3}; layer o {3};
  cycle { x -> o; o <-(cross_entropy(ignore_index=-100))- y; }
})";
// Two losses, each with its own ignored positions, and one that counts all samples.
constexpr const char* kThree = R"(harmonic g {
  producer x {2}; producer y {3}; producer z {3}; layer h {4}; layer o {3}; layer p {3}; layer q {2};
  cycle { x -(tanh)-> h; h -> o; h -> q; h -(log_softmax)-> p;
    o <-(cross_entropy(ignore_index=-100, label_smoothing=0.125))- y; p <-(nll(ignore_index=1,
      weight=0.5))- z; q <- x; }
})";

const std::vector<int32_t> kSome{0, -100, -100, -100, 2, 1, -100, -100};
const std::vector<int32_t> kOther{1, 1, 2, 0, 1, 1, 1, 2};

std::vector<float> inputs() {
  std::vector<float> x = numbers(16, 5);
  for (float& v : x) v *= 3;
  return x;
}

std::unique_ptr<BoundGraph> graph_with(const std::string& text, const std::vector<int32_t>& labels) {
  auto g = graph_of(text);
  for (const bool test : {false, true}) {
    const auto put = [&](const char* name, auto sample, auto values) {
      if (g->graph().find(name) < 0) return;
      test ? bind_test(*g, name, sample, values) : bind_rows(*g, name, sample, values);
    };
    put("x", Shape{2}, inputs());
    put("y", Shape{}, labels);
    put("z", Shape{}, kOther);
  }
  return g;
}

CycleReport still(const char* flow, const std::vector<int32_t>& labels, int64_t batch, int64_t accumulate = 1,
                  int64_t window = 0) {
  auto g = graph_with(flow, labels);
  RunSettings s = settings(batch);
  s.optimizer = "sgd(lr=0)";
  s.epochs = 1;
  s.shuffle = false;
  s.accumulate = accumulate;
  if (window > 0) s.window = window;
  return CycleRuntime(*g, 0, s).run();
}

std::map<std::string, std::vector<float>> trained(const char* flow, const char* optimizer, int64_t batch,
                                                  int64_t accumulate) {
  auto g = graph_with(flow, kSome);
  RunSettings s = settings(batch);
  s.optimizer = optimizer;
  s.epochs = 3;
  s.shuffle = false;
  s.accumulate = accumulate;
  CycleRuntime(*g, 0, s).run();
  std::map<std::string, std::vector<float>> learned;
  for (const auto& [name, t] : g->store().all())
    if (t.role == Role::weight) learned[name] = weights(*g, name);
  return learned;
}

}  // namespace

TEST_CASE("ignored class: a test's figures are means over counted positions for any batch size") {
  for (const char* flow : {kOne, kThree}) {
    auto g = graph_with(flow, kSome);
    declare(*g);
    const Evaluation whole = evaluate(*g, 0, g->test_streams(), settings(8));
    for (const int64_t batch : {1, 2, 3, 5}) {
      INFO("batch " << batch);
      const Evaluation e = evaluate(*g, 0, g->test_streams(), settings(batch));
      CHECK(e.loss == Approx(whole.loss).epsilon(1e-6));
      CHECK(e.accuracy == Approx(whole.accuracy));
      CHECK(*e.find("o.loss") == Approx(*whole.find("o.loss")).epsilon(1e-6));
    }
  }
}

TEST_CASE("ignored class: a run's figures are means over counted positions for any batch size") {
  for (const char* flow : {kOne, kThree}) {
    const CycleReport whole = still(flow, kSome, 8);
    for (const auto& [batch, accumulate] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 1}, {3, 1}, {1, 8}, {2, 4}, {3, 2}}) {
      INFO("batch " << batch << " by " << accumulate);
      const CycleReport r = still(flow, kSome, batch, accumulate);
      CHECK(r.loss == Approx(whole.loss).epsilon(1e-6));
      CHECK(r.accuracy == Approx(whole.accuracy));
      CHECK(r.by_epoch.at(0).loss == Approx(whole.by_epoch.at(0).loss).epsilon(1e-6));
      REQUIRE(r.metrics.size() == whole.metrics.size());
      for (const auto& [name, value] : whole.metrics) {
        INFO(name);
        CHECK(r.metrics.at(name) == Approx(value).epsilon(1e-6));
      }
    }
  }
}

TEST_CASE("loss: several taps give the sum of their means") {
  const CycleReport r = still(kThree, kSome, 1);
  CHECK(r.loss == Approx(r.metrics.at("o.loss") + r.metrics.at("p.loss") + r.metrics.at("q.loss")));
}

TEST_CASE("window: its size is in samples, its mean over the counted ones") {
  const CycleReport r = still(kOne, {0, 1, 2, 0, 2, -100, -100, 1}, 1, 1, 4);
  const CycleReport last = still(kOne, {-100, -100, -100, -100, 2, -100, -100, 1}, 8);
  CHECK(r.metrics.at("window.loss") ==
        Approx((r.metrics.at("loss") * 6 - still(kOne, {0, 1, 2, 0, -100, -100, -100, -100}, 8).loss * 4) / 2)
            .epsilon(1e-5));
  CHECK(r.metrics.at("window.loss") == Approx(last.loss).epsilon(1e-5));
}

TEST_CASE("accuracy: ignored positions are never correct") {
  auto g = graph_of(R"(harmonic g { producer x {2}; producer y {2}; layer o {2}; cycle { x -> o; )"
                    R"(o <-(cross_entropy(ignore_index=0))- y; } })");
  bind_test<float>(*g, "x", {2}, {1, 0, 1, 0, 1, 0, 0, 1});
  bind_test<int32_t>(*g, "y", {}, {0, 0, 1, 1});
  bind_rows<float>(*g, "x", {2}, {1, 0, 1, 0, 1, 0, 0, 1});
  bind_rows<int32_t>(*g, "y", {}, {0, 0, 1, 1});
  declare(*g);
  set_weights(*g, "x.o.affine.weight", {1, 0, 0, 1});
  set_weights(*g, "x.o.affine.bias", {0, 0});
  RunSettings s = settings(4);
  s.optimizer = "sgd(lr=0)";
  s.epochs = 1;
  CHECK(CycleRuntime(*g, 0, s).run().accuracy == Approx(0.5));
  CHECK(evaluate(*g, 0, g->test_streams(), s).accuracy == Approx(0.5));
}

TEST_CASE("ignored class: without counted positions nothing is measured and no condition holds") {
  const std::vector<int32_t> none(8, -100);
  auto g = graph_with(kOne, none);
  declare(*g);
  const Evaluation e = evaluate(*g, 0, g->test_streams(), settings(2));
  CHECK(std::isnan(e.loss));
  CHECK_FALSE(e.accuracy >= 0);
  RunSettings s = settings(2);
  s.optimizer = "sgd(lr=0.1)";
  s.epochs = 2;
  s.until = {"loss<100"};
  const std::vector<float> before = weights(*g, "x.o.affine.weight");
  const CycleReport r = CycleRuntime(*g, 0, s).run();
  CHECK(r.stopped_by == "epochs");
  CHECK(r.metrics.count("loss") == 0);
  CHECK(r.metrics.count("o.accuracy") == 0);
  CHECK(r.curve.empty());
  CHECK(weights(*g, "x.o.affine.weight") == before);
}

TEST_CASE("accumulate: each batch is weighted by its counted positions, separately for each loss") {
  for (const char* flow : {kOne, kThree})
    for (const char* optimizer : {"sgd(lr=0.25, momentum=0.5)", "adam(lr=0.015625)"})
      for (const auto& [batch, accumulate] :
           std::vector<std::pair<int64_t, int64_t>>{{1, 8}, {2, 4}, {4, 2}, {3, 3}, {1, 6}, {2, 3}}) {
        INFO(optimizer << ", batch " << batch << " by " << accumulate);
        const auto large = trained(flow, optimizer, batch * accumulate, 1),
                   small = trained(flow, optimizer, batch, accumulate);
        REQUIRE(large.size() == small.size());
        for (const auto& [name, values] : large)
          for (size_t i = 0; i < values.size(); ++i) {
            INFO(name << " " << i);
            CHECK(std::abs(small.at(name)[i] - values[i]) <= 3e-6 * (1 + std::abs(values[i])));
          }
      }
}

TEST_CASE("accumulate: gradients of several losses add up, and only= is respected") {
  const char* flow = R"(harmonic g {
    producer x {2}; producer y {3}; layer h {4}; layer o {3}; layer q {2};
    cycle { x -(tanh)-> h; h -> o; h -> q; o <-(cross_entropy(ignore_index=-100,
      only="h.o.*"))- y; q <-(mse(only="x.*"))- x; }
  })";
  const auto large = trained(flow, "sgd(lr=0.25)", 8, 1), small = trained(flow, "sgd(lr=0.25)", 2, 4);
  for (const auto& [name, values] : large)
    for (size_t i = 0; i < values.size(); ++i) CHECK(small.at(name)[i] == Approx(values[i]).margin(2e-6));
}

TEST_CASE("ignored class: ignored positions of a text count in no batch") {
  const auto run = [](int64_t batch) {
    auto g = graph_of(R"(harmonic g { producer w {*, 5}; layer e {*, 4}; layer o; cycle { w -(embed)-> e -> o; )"
                      R"(o <-(next_token(ignore_index=0))- w; } })");
    std::vector<int32_t> ids;
    for (int i = 0; i < 24; ++i) ids.push_back(i < 11 ? 0 : i * 7 % 5);
    bind_rows<int32_t>(*g, "w", {4}, ids);
    bind_test<int32_t>(*g, "w", {4}, ids);
    declare(*g);
    RunSettings s = settings(batch);
    s.metrics = {"perplexity"};
    const Evaluation e = evaluate(*g, 0, g->test_streams(), s);
    CHECK(std::exp(e.loss) == Approx(*e.find("perplexity")).epsilon(1e-5));
    return e.loss;
  };
  const double whole = run(6);
  for (const int64_t batch : {1, 2, 4}) CHECK(run(batch) == Approx(whole).epsilon(1e-6));
}

TEST_CASE("metrics: a value that only some batches have is a mean over all of them") {
  Metrics m;
  const size_t loss = m.declare("loss"), other = m.part(loss, "y without 0");
  CHECK(m.part(loss, "") == 0);
  const auto step = [&](size_t part, double value, double weight) {
    m.begin_batch(loss, 4);
    m.add(loss, part, value, weight, 4);
    m.end_step();
  };
  for (int i = 0; i < 100; ++i) step(0, 1, 4);
  CHECK(m.value(loss) == Approx(1));
  for (int i = 0; i < 50; ++i) step(other, 3, 1);
  CHECK(m.value(loss) == Approx(2));
  step(other, 7, 0);  // no counted positions
  CHECK(m.value(loss) == Approx(2));
  for (int i = 0; i < 50; ++i) step(other, 3, 2);
  CHECK(m.value(loss) == Approx(3));
}

TEST_CASE("metrics: steps without counted positions keep their place in a restored window") {
  Metrics m;
  const auto step = [](Metrics& to, int i) {
    const size_t loss = to.declare("loss");
    to.begin_batch(loss, 4);
    to.add(loss, 0, i, i % 3 == 0 ? 2 : 0, 4);
    to.end_step();
  };
  for (int i = 0; i < 320; ++i) step(m, i);
  for (int i = 320; i < 330; ++i) {
    RecordState r;
    r.windows = m.windows();
    TensorFile file;
    const boost::json::value written = boost::json::parse(boost::json::serialize(json_of(r, file)));
    Metrics again;
    again.declare("loss");
    again.restore(take_record(Fields(written), 2, file).windows, {});
    for (int64_t last = 1; last <= 100; ++last) CHECK(again.recent(last) == m.recent(last));
    step(m, i), step(again, i);
    for (int64_t last = 1; last <= 100; ++last) CHECK(again.recent(last) == m.recent(last));
  }
}

TEST_CASE("loss parts: restored from a checkpoint, and a state without parts counts all samples") {
  Metrics m;
  const size_t loss = m.declare("loss"), other = m.part(loss, "y without 0");
  m.keep_windows(6);
  const auto step = [](Metrics& to, size_t metric, size_t part, double value) {
    to.begin_batch(metric, 2);
    to.add(metric, 0, 1, 2, 2);
    to.add(metric, part, value, 0.5, 2);
    to.end_step();
  };
  for (int i = 0; i < 7; ++i) step(m, loss, other, i);
  RecordState r;
  r.windows = m.windows();
  r.epoch_measured = 14;
  r.epoch_loss = {{"", {7, 14, 14, 0}}, {"y without 0", {10.5, 3.5, 14, 0}}};
  TensorFile file;
  const boost::json::value written = boost::json::parse(boost::json::serialize(json_of(r, file)));
  const RecordState back = take_record(Fields(written), 2, file);
  CHECK(back.epoch_loss.at("y without 0").weight == 3.5);
  CHECK(back.epoch_loss.at("").sum == 7);
  Metrics again, plain;
  const size_t same = again.declare("loss"), part = again.part(same, "y without 0");
  again.keep_windows(6);
  again.restore(back.windows, {});
  step(m, loss, other, 9);
  step(again, same, part, 9);
  CHECK(again.all() == m.all());
  const size_t alone = plain.declare("loss");
  plain.restore(back.windows, {});
  CHECK(plain.value(alone) == Approx(1));
}
