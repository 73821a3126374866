// The C++ API for programs that embed the engine.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <harmonics/graph.hpp>
#include <harmonics/ops.hpp>

using namespace harmonics;

namespace {

// y = 2 a - b + 1 for sequential rows.
class Points : public Producer {
 public:
  Points(bool targets, std::size_t rows) : targets_(targets), rows_(rows) {}
  HTensor next() override {
    if (at_ == rows_) return {};
    const float a = static_cast<float>(at_ % 7) / 7, b = static_cast<float>(at_ % 5) / 5, y = 2 * a - b + 1;
    ++at_;
    const float xs[] = {a, b};
    return targets_ ? HTensor(DType::F32, Shape{1}, &y) : HTensor(DType::F32, Shape{2}, xs);
  }
  std::size_t size() const override { return rows_; }
  bool rewind() override { return at_ = 0, true; }

 private:
  bool targets_;
  std::size_t rows_, at_ = 0;
};

// Returns only samples and their count, and ends permanently; three classes in turn.
class Once : public Producer {
 public:
  explicit Once(bool labels) : labels_(labels) {}
  HTensor next() override {
    if (at_ == 30) return {};
    const float x[] = {static_cast<float>(at_ % 3), 1};
    const auto label = static_cast<uint8_t>(at_++ % 3);
    return labels_ ? HTensor(DType::U8, Shape{}, &label) : HTensor(DType::F32, Shape{2}, x);
  }
  std::size_t size() const override { return 30; }

 private:
  bool labels_;
  int at_ = 0;
};

struct Kept : Consumer {
  std::vector<float> values;
  void push(const HTensor& sample) override { values.push_back(sample.data<float>()[0]); }
};

struct Negated : ActivationFunction {
  HTensor operator()(const HTensor& x) const override { return -x; }
};

constexpr const char* kLine =
    R"(harmonic line { producer x; producer y; layer o {1}; cycle { x -(affine(1))-> o; o <-(mse)- y; } })";
constexpr const char* kWithIdentity =
    R"(harmonic line { producer x; producer y; layer o {1}; cycle { x -(identity)-> o; o <-(mse)- y; } })";

HarmonicGraph line(const char* text = kLine) {
  HarmonicGraph g = parse_hmx_text(text);
  g.bindProducer("x", std::make_shared<Points>(false, 70));
  g.bindProducer("y", std::make_shared<Points>(true, 70));
  return g;
}

FitOptions settings() {
  FitOptions o;
  o.epochs = 60;
  o.batch = 10;
  o.threads = 1;
  o.optimizer = "adam(lr=0.05)";
  return o;
}

HTensor row(float a, float b) {
  const float xs[] = {a, b};
  return HTensor(DType::F32, Shape{2}, xs);
}

}  // namespace

TEST_CASE("a producer with only next and size can seek to any of its samples") {
  const auto first = [](const HTensor& x) { return x.data<float>()[0]; };
  const auto check = [&](std::shared_ptr<Producer> given, float fourth) {
    const std::shared_ptr<Producer> p = std::make_shared<KnownProducer>(std::move(given));
    REQUIRE(p->describe());
    for (int i = 0; i < 6; ++i) p->next();
    REQUIRE(p->seek(0, 4));
    CHECK(first(p->next()) == fourth);
    REQUIRE(p->seek(1, 0));
    REQUIRE(p->seek(1, 20));
    for (int i = 0; i < 10; ++i) REQUIRE(p->next());
    CHECK(!p->next());
    CHECK_THROWS_AS(p->seek(2, 31), Error);
    REQUIRE(p->seek(2, 0));
    std::vector<float> block(30 * 2);
    CHECK(p->read(30, block.data()) == 30);
    CHECK(block[8] == fourth);
    CHECK(p->read(1, block.data()) == 0);
  };
  check(std::make_shared<Once>(false), 1);               // cached
  check(std::make_shared<Points>(false, 30), 4.0f / 7);  // rewinds itself
}

TEST_CASE("a line is learned, and inference reproduces it") {
  HarmonicGraph g = line();
  const FitReport r = g.fit(settings());
  CHECK(r.epochs == 60);
  CHECK(r.steps == 420);
  CHECK(r.samples == 4200);
  CHECK(r.stopped_by == "epochs");
  CHECK(r.loss < 1e-3);
  const HTensor one = g.infer(row(0.5f, 0.25f));
  CHECK(one.shape() == Shape{1});
  CHECK(one.data<float>()[0] == Approx(1.75).margin(0.05));
  const float two[] = {0, 0, 1, 1};
  const HTensor both = g.infer({{"x", HTensor(DType::F32, Shape{2, 2}, two)}}).at("o");
  CHECK(both.shape() == Shape{2, 1});
  CHECK(both.data<float>()[1] == Approx(2).margin(0.1));
}

TEST_CASE("data() and size() hold the graph, and a restored graph keeps its weights") {
  std::vector<char> blob;
  float answer = 0;
  {
    HarmonicGraph g = line();
    g.fit(settings());
    answer = g.infer(row(0.3f, 0.9f)).data<float>()[0];
    const auto* data = static_cast<const char*>(g.data());
    blob.assign(data, data + g.size());
    CHECK(g.data() == data);
  }
  HarmonicGraph again = parse_blob(blob.data(), blob.size());
  blob.assign(blob.size(), 0);
  CHECK(again.infer(row(0.3f, 0.9f)).data<float>()[0] == answer);
  CHECK(again.weights().size() == 2);
  CHECK(again.weight(again.weights().front()).dtype() == DType::F32);
  again.bindProducer("x", std::make_shared<Points>(false, 70));
  again.bindProducer("y", std::make_shared<Points>(true, 70));
  FitOptions more = settings();
  more.epochs = 1;
  CHECK(again.fit(more).loss < 1e-2);
}

TEST_CASE("a graph of a broken file is refused") {
  const std::string text = "not a graph at all";
  CHECK_THROWS_AS(parse_blob(text.data(), text.size()), Error);
}

TEST_CASE("time ends a fit on finite streams, and a policy names unsupported settings") {
  HarmonicGraph g = line();
  const FitReport r = g.fit(std::chrono::milliseconds(150), make_auto_policy());
  CHECK(r.stopped_by == "for");  // not by the end of a pass of 70 samples
  CHECK(r.epochs == r.samples / 70);
  CHECK(r.seconds >= 0.15);
  REQUIRE(!r.notes.empty());
  CHECK(r.notes.back().rfind("precision auto: ", 0) == 0);
}

TEST_CASE("fit: a step that makes weights infinite throws, and the weights before it remain") {
  // One feature is nonzero in a single row, whose loss is finite but whose gradient is too large for an update.
  class Last : public Producer {
   public:
    explicit Last(bool targets) : targets_(targets) {}
    HTensor next() override {
      if (at_ == 9) return {};
      const float n = static_cast<float>(++at_), x[] = {at_ == 9 ? 1e38f : 0, n / 9}, y = n / 3;
      return targets_ ? HTensor(DType::F32, Shape{1}, &y) : HTensor(DType::F32, Shape{2}, x);
    }
    std::size_t size() const override { return 9; }
    bool rewind() override { return at_ = 0, true; }

   private:
    bool targets_;
    int at_ = 0;
  };
  const auto fitted = [](std::optional<int64_t> steps, std::string& said) {
    HarmonicGraph g =
        parse_hmx_text("harmonic g { producer x; producer y; layer o {1}; cycle { x -> o; o <-(mae)- y; } }");
    g.bindProducer("x", std::make_shared<Last>(false));
    g.bindProducer("y", std::make_shared<Last>(true));
    FitOptions o;
    o.epochs = 1;
    o.steps = steps;
    o.batch = 1;
    o.threads = 1;
    o.optimizer = "sgd(lr=10)";
    try {
      g.fit(o);
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::Diverged);
      said = e.what();
      for (const std::string& note : e.notes()) said += "\n" + note;
    }
    return std::pair(g.infer(row(1, 0)).data<float>()[0], g.infer(row(0, 1)).data<float>()[0]);
  };
  std::string said, nothing;
  const auto left = fitted(std::nullopt, said);
  INFO(said);
  const std::size_t at = said.find(" had a finite loss but made 'x.o.affine.weight' infinite");
  REQUIRE(at != std::string::npos);
  const int64_t bad = std::stoll(said.substr(said.rfind("step ", at) + 5));  // rows are shuffled
  REQUIRE(bad > 1);
  CHECK(left == fitted(bad - 1, nothing));
  CHECK(nothing.empty());
  CHECK(std::isfinite(left.first));
}

TEST_CASE("progress can stop a fit") {
  HarmonicGraph g = line();
  FitOptions o = settings();
  o.epochs = 1000000;
  int calls = 0;
  o.progress = [&](const FitProgress& p) { return p.step >= 0 && ++calls < 2; };
  const FitReport r = g.fit(o);
  CHECK(r.stopped_by == "interrupt");
  CHECK(calls == 2);
}

TEST_CASE("a graph's own function has priority over the library's, also after streams are bound") {
  HarmonicGraph g = line(kWithIdentity);
  g.registerActivation("identity", std::make_shared<Negated>());
  FitOptions o = settings();
  o.epochs = 0;
  g.fit(o);
  HarmonicGraph plain = line(kWithIdentity);
  plain.fit(o);
  const float value = plain.infer(row(1, 2)).data<float>()[0];
  CHECK(value != 0);
  CHECK(g.infer(row(1, 2)).data<float>()[0] == -value);
}

TEST_CASE("producers that give their samples once are read for many epochs") {
  HarmonicGraph g = parse_hmx_text(
      "harmonic c { producer x; producer y; layer h {16}; layer o; cycle { x -(relu)-> h -> o; o <-(cross_entropy)- y; "
      "} }");
  g.bindProducer("x", std::make_shared<Once>(false));
  g.bindProducer("y", std::make_shared<Once>(true));
  CHECK(g.layers().back().shape == Shape{3});
  FitOptions o = settings();
  o.epochs = 100;
  const FitReport r = g.fit(o);
  CHECK(r.samples == 3000);
  CHECK(r.accuracy == 1);
}

TEST_CASE("layers and tests can be queried") {
  HarmonicGraph g = line();
  g.bindTest("x", std::make_shared<Points>(false, 35));
  g.bindTest("y", std::make_shared<Points>(true, 35));
  g.fit(settings());
  const TestReport t = g.test();
  CHECK(t.samples == 35);
  CHECK(t.loss < 1e-3);
  const std::vector<LayerInfo> layers = g.layers();
  REQUIRE(layers.size() == 1);
  CHECK(layers[0].name == "o");
  CHECK(layers[0].shape == Shape{1});
  CHECK(!layers[0].reason.empty());
}

TEST_CASE("consumers receive the results of an inference graph") {
  HarmonicGraph g =
      parse_hmx_text("harmonic twice { producer x; consumer c; layer o {1}; cycle { x -(affine(1))-> o -> c; } }");
  g.bindProducer("x", std::make_shared<Points>(false, 12));
  const auto kept = std::make_shared<Kept>();
  g.bindConsumer("c", kept);
  g.fit();
  CHECK(kept->values.size() == 12);
}

TEST_CASE("errors suggest a correction") {
  CHECK_THROWS_WITH(parse_hmx("nowhere.hmx"), Catch::Contains("nowhere.hmx"));
  CHECK_THROWS_WITH(parse_hmx_text("harmonic a {"), Catch::Contains("text:1:"));
  HarmonicGraph g = line();
  CHECK_THROWS_WITH(g.bindProducer("z", std::make_shared<Points>(false, 1)), "'line' has no producer named 'z'");
  CHECK_THROWS_WITH(g.bindProducer("x", std::make_shared<Points>(false, 1)), "producer 'x' is bound twice");
  CHECK_THROWS_WITH(g.bindProducer("x", std::shared_ptr<Producer>()), "producer 'x' is bound to nothing");
  CHECK_THROWS_WITH(g.weight("o"), "there is no weight 'o'");
  const float three[] = {1, 2, 3};
  CHECK_THROWS_WITH(g.infer(HTensor(DType::F32, Shape{3}, three)),
                    "producer 'x' takes f32[2], or several along a new first axis, not f32[3]");
  FitOptions o = settings();
  o.optimizer = "adamm";
  CHECK_THROWS_AS(g.fit(o), Error);
  o.optimizer = "adam";
  o.precision = "fp8";
  CHECK_THROWS_WITH(g.fit(o), "device 'cpu' does not support fp8 here");
  o.precision = "fp12";
  CHECK_THROWS_WITH(g.fit(o), "there is no precision 'fp12'");
}
