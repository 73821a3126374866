// Every kind of item that an embedding program can register.
#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

#include "tests/engine/embed/lines.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

struct Halved : ActivationFunction {
  HTensor operator()(const HTensor& x) const override { return x * 0.5; }
};
struct HalvedBody : FunctionalBody {
  std::vector<HTensor> operator()(const std::vector<HTensor>& in, const Arguments&) const override {
    return {in.at(0) * 0.5};
  }
};
// Returns a hundred times the functional's result, so that the test recognises which code ran.
struct HundredTimes : Implementation {
  std::string supports(const CallSite&) const override { return ""; }
  std::vector<HTensor> run(const CallSite& site, const std::vector<HTensor>& in) const override {
    HTensor y(site.output_dtype(0), site.output_shape(0));
    for (int64_t i = 0; i < y.size(); ++i) y.mutable_data<float>()[i] = 100 * in.at(0).data<float>()[i];
    return {y};
  }
};
struct Squares : LossFunction {
  HTensor operator()(const HTensor& p, const HTensor& t) const override { return (p - t) * (p - t) * 3.0; }
};
// Reports the distance of predictions from targets as `name`.
struct Telling : LossFunction {
  explicit Telling(std::vector<const char*> names) : names(std::move(names)) {}
  HTensor operator()(const HTensor& p, const HTensor& t) const override {
    for (const char* name : names) report_figure(name, abs(p - t));
    return (p - t) * (p - t);
  }
  std::vector<const char*> names;
};
struct Worst : Metric {
  void add(const MetricBatch& b) override {
    for (uint64_t i = 0; i < b.rows; ++i) worst = std::fmax(worst, std::fabs(b.predictions[i] - b.targets[i]));
  }
  void reset() override { worst = 0; }
  std::vector<Figure> figures() const override { return {{"worst", worst}}; }
  double worst = 0;
};
struct Still : OptimizerFunction {
  std::vector<HTensor> step(const ParameterInfo&, const UpdateStep& u, const Arguments&) const override {
    return {u.value};
  }
};
struct None : ScheduleFunction {
  double factor(const RunPoint&, const Arguments&) const override { return 0; }
};
struct After : PredicateFunction {
  bool operator()(const RunView& run, const Arguments& a) const override { return run.step() >= a.integer("step"); }
};
struct Doubled : AugmentationFunction {
  void operator()(const SampleType& sample, const void* from, PhiloxStream&, const SampleType&, void* to,
                  const Arguments&) const override {
    for (int64_t i = 0; i < sample.shape.count(); ++i)
      static_cast<float*>(to)[i] = 2 * static_cast<const float*>(from)[i];
  }
};
struct KeptRows : Consumer {
  explicit KeptRows(std::vector<float>& to) : to_(to) {}
  void push(const HTensor& sample) override { to_.push_back(sample.data<float>()[0]); }
  std::vector<float>& to_;
};
// Has no kernels: the reference device computes everything.
struct Nothing : Device {
  std::string describe() const override { return "nothing"; }
  bool find(const hx_call_site&, hx_kernel&) override { return false; }
};

HarmonicGraph taught_by(const std::string& arrow) {
  HarmonicGraph g = line_graph(arrow);
  bind_line(g);
  return g;
}

}  // namespace

TEST_CASE("registering: an embedder's functional is an arrow and a call") {
  HarmonicGraph g = parse_hmx_text("harmonic h { producer x {2}; layer o {2}; cycle { x -(embed_half)-> o; } }");
  g.registerFunctional("embed_half", std::make_shared<HalvedBody>(), "half of it");
  CHECK(g.infer(line_row(3, 5)).data<float>()[1] == 2.5f);
  CHECK(call1("embed_half", {line_row(3, 5)}).data<float>()[0] == 1.5f);
}

TEST_CASE("registering: an embedder's implementation computes only its own graph") {
  const auto graph = [] { return parse_hmx_text("harmonic h { producer x {2}; layer o; cycle { x -(silu)-> o; } }"); };
  HarmonicGraph g = graph(), plain = graph();
  g.registerImplementation("silu", "hundred", std::make_shared<HundredTimes>());
  CHECK(g.infer(line_row(3, 5)).data<float>()[0] == 300);
  CHECK(plain.infer(line_row(3, 5)).data<float>()[0] == Approx(3 / (1 + std::exp(-3.0))));
}

TEST_CASE("registering: an embedder's loss, metric and layer are used") {
  HarmonicGraph g = line_graph("affine(1)", "squares");
  g.registerLoss("squares", std::make_shared<Squares>());
  g.registerMetric("worst", [](const Arguments&) { return std::make_unique<Worst>(); });
  bind_line(g);
  g.bindTest("x", std::make_shared<LinePoints>(false, 35));
  g.bindTest("y", std::make_shared<LinePoints>(true, 35));
  FitOptions o = line_options(60);
  o.metrics = {"worst"};
  const FitReport r = g.fit(o);
  REQUIRE(r.by_epoch.size() == 60);
  CHECK(r.by_epoch.front().epoch == 1);
  CHECK(r.by_epoch.front().metrics.at("worst") > r.by_epoch.back().metrics.at("worst"));
  CHECK(r.metrics.count("loss") == 1);
  const TestReport t = g.test();
  CHECK(t.figures.at("worst") < 0.1);
  CHECK(t.figures.at("loss") == t.loss);
}

TEST_CASE("registering: figures that a loss reports are metrics of the run, its epochs and its validation") {
  HarmonicGraph g = line_graph("affine(1)", "telling");
  g.registerLoss("telling", std::make_shared<Telling>(std::vector<const char*>{"distance"}));
  bind_line(g);
  g.bindValidation("x", std::make_shared<LinePoints>(false, 35));
  g.bindValidation("y", std::make_shared<LinePoints>(true, 35));
  FitOptions o = line_options(30);
  o.metrics = {"mae"};  // equal to the reported number
  const FitReport r = g.fit(o);
  CHECK(r.metrics.count("distance") == 1);
  CHECK(r.metrics.count("o.distance") == 1);
  REQUIRE(r.by_epoch.size() == 30);
  for (const EpochFigures& e : {r.by_epoch.front(), r.by_epoch.back()}) {
    CHECK(e.metrics.at("distance") == Approx(e.metrics.at("mae")).epsilon(1e-4));
    CHECK(e.metrics.at("o.distance") == e.metrics.at("distance"));
    CHECK(e.validation.at("distance") == Approx(e.validation.at("mae")).epsilon(1e-4));
  }
  CHECK(r.by_epoch.back().metrics.at("distance") < r.by_epoch.front().metrics.at("distance"));
}

TEST_CASE("registering: a loss reports each figure once, by a name that conditions can have") {
  for (const std::vector<const char*>& names :
       {std::vector<const char*>{"far", "far"}, std::vector<const char*>{"so far"}, std::vector<const char*>{"loss"}}) {
    HarmonicGraph g = line_graph("affine(1)", "telling");
    g.registerLoss("telling", std::make_shared<Telling>(names));
    bind_line(g);
    const std::string message = message_of([&] { g.fit(line_options(1)); });
    CHECK(message.find(std::string("a loss cannot report a figure as '") + names.back() + "'") != std::string::npos);
  }
}

TEST_CASE("registering: an optimizer without updates and a schedule of zero leave the weights unchanged") {
  for (const bool by_schedule : {false, true}) {
    HarmonicGraph g = taught_by("affine(1)");
    g.registerOptimizer("still", std::make_shared<Still>(), "", {Argument::number("lr", "0.1", "of no use")});
    g.registerSchedule("none", std::make_shared<None>());
    FitOptions o = line_options(0);
    g.fit(o);
    const float before = asked(g, 0.5f, 0.5f);
    o = line_options(3);
    if (by_schedule)
      o.schedule = "none";
    else
      o.optimizer = "still(lr=0.5)";
    g.fit(o);
    CHECK(asked(g, 0.5f, 0.5f) == before);
  }
}

TEST_CASE("registering: a predicate decides a branch") {
  HarmonicGraph g = parse_hmx_text(
      "harmonic p { producer x; consumer c; layer o; cycle { if from_step(0) { x -(identity)-> o; } else { x -(relu)-> "
      "o; } o -> c; } }");
  g.registerPredicate("from_step", std::make_shared<After>(), "", {Argument::integer("step", "from this step").must()});
  g.bindProducer("x", std::make_shared<MemoryProducer>(std::vector<HTensor>{line_row(-1, 1)}));
  std::vector<float> got;
  g.bindConsumer("c", std::make_shared<KeptRows>(got));
  g.fit();
  CHECK(got == std::vector<float>{-1});
}

TEST_CASE("registering: addresses use schemes of producers and consumers, and an augmentation") {
  std::vector<float> got;
  HarmonicGraph g = parse_hmx_text("harmonic s { producer x; consumer c; layer o; cycle { x -(identity)-> o -> c; } }");
  g.registerProducer("rows",
                     [](const std::string& path, const Arguments& options) {
                       std::vector<HTensor> rows(static_cast<std::size_t>(options.integer("count")),
                                                 line_row(std::stof(path), 1));
                       return std::make_shared<MemoryProducer>(std::move(rows));
                     },
                     "", {Argument::integer("count", 2, "how many")});
  g.registerConsumer("kept", [&](const std::string&, const Arguments&) { return std::make_shared<KeptRows>(got); });
  g.registerAugmentation("doubled", std::make_shared<Doubled>());
  g.bindProducer("x", "rows:7?count=3&augment=doubled");
  g.bindConsumer("c", "kept:");
  g.fit();
  CHECK(got == std::vector<float>{14, 14, 14});
}

TEST_CASE("registering: a device is used") {
  HarmonicGraph g = taught_by("affine(1)");
  g.registerDevice("nothing", std::make_shared<Nothing>());
  FitOptions o = line_options(60);
  o.device = "nothing";
  CHECK(g.fit(o).loss < 1e-3);
}

TEST_CASE("registering: items of one graph are unknown to another") {
  HarmonicGraph mine = line_graph("halved_here"), other = line_graph("halved_here");
  mine.registerActivation("halved_here", std::make_shared<Halved>());
  bind_line(mine);
  CHECK(refused([&] { other.bindProducer("x", std::make_shared<LinePoints>(false, 3)); }).find("halved_here") !=
        std::string::npos);
}

TEST_CASE("registering: mistakes are refused like those of a plugin") {
  HarmonicGraph g = line_graph();
  CHECK(refused([&] {
          g.registerActivation("not fine", std::make_shared<Halved>());
        }).find("a name starts with a letter") != std::string::npos);
  CHECK(refused([&] { g.registerFunctional("relu", std::make_shared<HalvedBody>()); }) ==
        "cannot register functional 'relu': the library itself has one of this name; choose another");
  CHECK(refused([&] { g.registerOptimizer("mine", std::make_shared<Still>()); }).find("'lr'") != std::string::npos);
}
