// Programs that misuse the embedding API, and functions of theirs that fail.
#include <catch2/catch.hpp>

#include <functional>
#include <stdexcept>

#include "tests/engine/embed/lines.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine::testing;
using Catch::Matchers::Contains;

namespace {

// A name that the headers must leave to programs.
const int calls = 3;

// Gives one figure of the name in its argument, or two.
struct Named : Metric {
  explicit Named(const Arguments& arguments) : name(arguments.text("name")), twice(arguments.flag("twice")) {}
  void add(const MetricBatch&) override {}
  void reset() override {}
  std::vector<Figure> figures() const override {
    return twice ? std::vector<Figure>{{name, 1}, {name, 2}} : std::vector<Figure>{{name, 1}};
  }
  std::string name;
  bool twice;
};

FitReport fit_with(const std::string& metric) {
  HarmonicGraph g = line_graph();
  g.registerMetric("named", [](const Arguments& arguments) { return std::make_unique<Named>(arguments); }, "",
                   {Argument::text("name", "rate", ""), Argument::flag("twice", false, ""),
                    Argument::integers("sizes", "").in("1..3")});
  bind_line(g);
  FitOptions options = line_options(1);
  options.metrics = {metric};
  return g.fit(options);
}

// Two rows, then an exception; or a size that throws.
struct Failing : Producer {
  HTensor next() override {
    if (++at > 2) throw std::runtime_error("the sensor is gone");
    return line_row(1, 2);
  }
  std::size_t size() const override {
    if (!sized) throw std::runtime_error("the number is unknown");
    return 5;
  }
  bool sized = true;
  int at = 0;
};

}  // namespace

TEST_CASE("misuse: calls during a fit are refused and those of other threads allowed") {
  HarmonicGraph g = line_graph("affine(8), silu, affine(1)");
  bind_line(g);
  FitOptions endless = line_options(1 << 30);
  std::vector<std::string> said;
  endless.progress = [&](const FitProgress&) {
    const std::function<void()> misused[] = {[&] { g.fit(line_options(1)); },
                                             [&] { g.test(); },
                                             [&] { g.weights(); },
                                             [&] { g.weight("x.o.weight"); },
                                             [&] { g.data(); },
                                             [&] { g.save("never.safetensors"); },
                                             [&] { g.load("never.safetensors"); },
                                             [&] { g.layers(); },
                                             [&] { g.deploy({}); },
                                             [&] { g.bindProducer("x", std::make_shared<LinePoints>(false, 7)); }};
    for (const auto& call : misused) said.push_back(message_of(call));
    g.infer(line_row(1, 2));
    g.stop_fit();
    return true;
  };
  CHECK(g.fit(endless).stopped_by == "interrupt");
  REQUIRE(said.size() >= 10);
  for (const std::string& text : said) CHECK_THAT(text, Contains("fit() of this graph is running"));
  CHECK(g.fit(line_options(1)).steps == 7);
  CHECK(g.weights().size() == 4);
}

TEST_CASE("misuse: fit throws what its progress callback throws") {
  HarmonicGraph g = line_graph();
  bind_line(g);
  FitOptions options = line_options(1 << 30);
  options.progress = [](const FitProgress&) -> bool { throw std::length_error("too long"); };
  CHECK_THROWS_AS(g.fit(options), std::length_error);
  CHECK(g.fit(line_options(1)).steps == 7);
}

TEST_CASE("misuse: a graph that was moved away has no saved bytes") {
  HarmonicGraph g = line_graph();
  REQUIRE(g.size() > 0);
  const HarmonicGraph other = std::move(g);
  CHECK_THAT(message_of([&] { g.data(); }), Contains("moved away"));
  CHECK(other.size() > 0);
}

TEST_CASE("misuse: a fit of no time is refused") {
  HarmonicGraph g = line_graph();
  bind_line(g);
  CHECK_THAT(message_of([&] { g.fit(std::chrono::seconds(0)); }), Contains("'seconds' is 0"));
}

TEST_CASE("misuse: a metric's figures have names of their own") {
  CHECK(fit_with("named").metrics.at("rate") == 1);
  CHECK_THAT(message_of([] { fit_with("named(loss)"); }), Contains("metric 'named(loss)'") && Contains("as the loss"));
  CHECK_THAT(message_of([] { fit_with("named(rate, twice=true)"); }), Contains("'rate' twice"));
  CHECK_THAT(message_of([] { fit_with("named(\"\")"); }), Contains("without a name"));
  CHECK_THAT(message_of([] { fit_with("named(\"a\\nb\")"); }), Contains("control character"));
}

TEST_CASE("misuse: texts and lists of a metric are written as in a flow") {
  CHECK(fit_with("named(\"a, (b)\", sizes=[1, 2])").metrics.count("a, (b)") == 1);
  CHECK(fit_with("named(name=\"a=\\\"b\\\"\")").metrics.count("a=\"b\"") == 1);
  CHECK_THAT(message_of([] { fit_with("named(sizes=[1, 4])"); }), Contains("sizes"));
  CHECK_THAT(message_of([] { fit_with("named(\"a)"); }), Contains("does not end with its quote"));
  CHECK_THAT(message_of([] { fit_with("named(\"a\"b)"); }), Contains("does not end with its quote"));
}

TEST_CASE("misuse: an exception of a producer names its stream once, and one of size() is not lost") {
  HarmonicGraph g = line_graph();
  g.bindProducer("x", std::make_shared<Failing>());
  g.bindProducer("y", std::make_shared<LinePoints>(true, 5));
  CHECK(message_of([&] { g.fit(line_options(1)); }) == "stream 'x': the sensor is gone");
  const auto unsized = std::make_shared<Failing>();
  unsized->sized = false;
  HarmonicGraph other = line_graph();
  CHECK(message_of([&] { other.bindProducer("x", unsized); }) == "stream 'x': the number is unknown");
  CHECK(calls == 3);
}

TEST_CASE("misuse: a producer that another graph has read to its end is read from its beginning") {
  const std::vector<HTensor> rows(10, line_row(1, 2)), targets(10, HTensor::from<float>({1}, {1}));
  const auto x = std::make_shared<MemoryProducer>(rows), y = std::make_shared<MemoryProducer>(targets);
  for (int graph = 0; graph < 2; ++graph) {
    HarmonicGraph g = line_graph();
    g.bindProducer("x", x);
    g.bindProducer("y", y);
    CHECK(g.fit(line_options(2)).samples == 20);
  }
}
