// Names registered for a scope: a thread or a graph.
#include <catch2/catch.hpp>

#include <memory>
#include <optional>
#include <thread>

#include "tests/engine/embed/lines.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

struct Times : ActivationFunction {
  explicit Times(double factor) : factor_(factor) {}
  HTensor operator()(const HTensor& x) const override { return x * factor_; }
  double factor_;
};
struct TimesBody : FunctionalBody {
  explicit TimesBody(double factor) : factor_(factor) {}
  std::vector<HTensor> operator()(const std::vector<HTensor>& in, const Arguments&) const override {
    return {in.at(0) * factor_};
  }
  double factor_;
};
struct TimesAll : Implementation {
  std::string supports(const CallSite&) const override { return ""; }
  std::vector<HTensor> run(const CallSite& site, const std::vector<HTensor>& in) const override {
    HTensor y(site.output_dtype(0), site.output_shape(0));
    for (int64_t i = 0; i < y.size(); ++i) y.mutable_data<float>()[i] = 100 * in.at(0).data<float>()[i];
    return {y};
  }
};

std::shared_ptr<Times> times(double factor) { return std::make_shared<Times>(factor); }
HarmonicGraph through(const std::string& function) {
  return parse_hmx_text("harmonic h { producer x {2}; layer o; cycle { x -(" + function + ")-> o; } }");
}
float first(HarmonicGraph& g) { return g.infer(line_row(3, 5)).data<float>()[0]; }

}  // namespace

TEST_CASE("scoped registry: earlier and later graphs see a thread's names until the scope ends") {
  HarmonicGraph before = through("relu"), unused = through("relu");
  CHECK(first(before) == 3);
  {
    ScopedRegistry scope;
    scope.registerActivation("relu", times(10));
    HarmonicGraph within = through("relu");
    CHECK(first(before) == 30);
    CHECK(first(within) == 30);
    {
      ScopedRegistry inner;
      inner.registerActivation("relu", times(20));
      CHECK(first(within) == 60);
    }
    CHECK(first(within) == 30);
    scope.registerActivation("relu", times(11));  // the last item of a name applies
    CHECK(first(within) == 33);
  }
  CHECK(first(before) == 3);
  CHECK(first(unused) == 3);
}

TEST_CASE("scoped registry: a new name is unknown before and after the scope") {
  HarmonicGraph g = through("times_here");
  CHECK(refused([&] { first(g); }).find("times_here") != std::string::npos);
  {
    ScopedRegistry scope;
    scope.registerActivation("times_here", times(4));
    CHECK(first(g) == 12);
  }
  CHECK(refused([&] { first(g); }).find("times_here") != std::string::npos);
  ScopedRegistry again;
  again.registerActivation("times_here", times(5));
  CHECK(first(g) == 15);
}

TEST_CASE("scoped registry: a graph's scope has priority over its own functions, and another graph does not see it") {
  HarmonicGraph a = through("relu"), b = through("relu");
  a.registerActivation("relu", times(2));
  CHECK(first(a) == 6);
  {
    ScopedRegistry of_thread;
    of_thread.registerActivation("relu", times(7));
    CHECK(first(a) == 6);  // its own items take precedence over the thread's
    CHECK(first(b) == 21);
    ScopedRegistry of_graph(a);
    of_graph.registerActivation("relu", times(9));
    CHECK(first(a) == 27);
    CHECK(first(b) == 21);
  }
  CHECK(first(a) == 6);
  CHECK(first(b) == 3);
}

TEST_CASE("scoped registry: scopes may end in any order") {
  HarmonicGraph g = through("relu");
  std::optional<ScopedRegistry> one(std::in_place), two(std::in_place), three(std::in_place, g);
  one->registerActivation("relu", times(2));
  two->registerActivation("relu", times(3));
  three->registerActivation("relu", times(4));
  CHECK(first(g) == 12);
  one.reset();
  three.reset();
  CHECK(first(g) == 9);
  two.reset();
  CHECK(first(g) == 3);
}

TEST_CASE("scoped registry: functionals release their names in any order") {
  const auto factor = [] { return call1("times_in_turn", {line_row(1, 1)}).data<float>()[0]; };
  std::optional<ScopedRegistry> one(std::in_place), two(std::in_place), three(std::in_place);
  one->registerFunctional("times_in_turn", std::make_shared<TimesBody>(1));
  two->registerFunctional("times_in_turn", std::make_shared<TimesBody>(2));
  three->registerFunctional("times_in_turn", std::make_shared<TimesBody>(3));
  CHECK(factor() == 3);
  two.reset();
  CHECK(factor() == 3);
  three.reset();
  CHECK(factor() == 1);
  one.reset();
  CHECK(refused([&] { factor(); }).find("there is no operation 'times_in_turn'") == 0);
}

TEST_CASE("scoped registry: another thread does not see it") {
  ScopedRegistry scope;
  scope.registerActivation("relu", times(10));
  float there = 0;
  std::thread([&] {
    HarmonicGraph g = through("relu");
    there = first(g);
  }).join();
  CHECK(there == 3);
}

TEST_CASE("scoped registry: implementations and functionals work within the scope") {
  HarmonicGraph g = through("silu");
  const float plain = first(g);
  {
    ScopedRegistry scope;
    scope.registerImplementation("silu", "hundred", std::make_shared<TimesAll>());
    CHECK(first(g) == 300);
    scope.registerFunctional("times_functional", std::make_shared<TimesBody>(2));
    CHECK(call1("times_functional", {line_row(3, 5)}).data<float>()[0] == 6);
    {
      ScopedRegistry inner;
      inner.registerFunctional("times_functional", std::make_shared<TimesBody>(4));
      CHECK(call1("times_functional", {line_row(3, 5)}).data<float>()[0] == 12);
    }
    CHECK(call1("times_functional", {line_row(3, 5)}).data<float>()[0] == 6);
  }
  CHECK(first(g) == plain);
  CHECK(refused([] { call1("times_functional", {line_row(3, 5)}); }).find("there is no operation 'times_functional'") ==
        0);
}

TEST_CASE("scoped registry: a graph trains with it, and keeps its weights") {
  HarmonicGraph g = line_graph("affine(1), own_identity");
  ScopedRegistry scope(g);
  scope.registerActivation("own_identity", times(1));
  bind_line(g);
  CHECK(g.fit(line_options(60)).loss < 1e-3);
  const float answer = asked(g, 0.5f, 0.25f);
  CHECK(answer == Approx(1.75).margin(0.05));
  ScopedRegistry twice(g);
  twice.registerActivation("own_identity", times(2));
  CHECK(asked(g, 0.5f, 0.25f) == Approx(2 * answer));
}

TEST_CASE("scoped registry: names in fit() and addresses are looked up in it") {
  struct Still : OptimizerFunction {
    std::vector<HTensor> step(const ParameterInfo&, const UpdateStep& u, const Arguments&) const override {
      return {u.value};
    }
  };
  const auto rows = [](bool targets) {
    return [targets](const std::string& path, const Arguments&) -> std::shared_ptr<Producer> {
      return std::make_shared<LinePoints>(targets, static_cast<std::size_t>(std::stoi(path)));
    };
  };
  HarmonicGraph g = line_graph();
  {
    ScopedRegistry scope;
    scope.registerProducer("line_x", rows(false));
    scope.registerProducer("line_y", rows(true));
    scope.registerOptimizer("still", std::make_shared<Still>(), "", {Argument::number("lr", "0.1", "of no use")});
    g.bindProducer("x", "line_x:70");
    g.bindProducer("y", "line_y:70");
    g.fit(line_options(0));
    const float before = asked(g, 1, 0);
    FitOptions o = line_options(2);
    o.optimizer = "still";
    g.fit(o);
    CHECK(asked(g, 1, 0) == before);
  }
  FitOptions o = line_options(60);
  CHECK(g.fit(o).loss < 1e-3);  // its producers still work
  o.optimizer = "still";
  CHECK(refused([&] { g.fit(o); }).find("still") != std::string::npos);
}

namespace {

// Destroyed after everything else of the main thread.
std::unique_ptr<ScopedRegistry> lasting;

}  // namespace

TEST_CASE("scoped registry: a static scope ends with the process") {
  lasting = std::make_unique<ScopedRegistry>();
  lasting->registerActivation("lasting_identity", times(1));
  HarmonicGraph g = through("lasting_identity");
  CHECK(first(g) == 3);
}

TEST_CASE("scoped registry: a plugin's function registers into it") {
  ScopedRegistry scope;
  const auto harmonics_register = [](FunctionRegistry& reg) { reg.register_activation("my_act", times(6)); };
  harmonics_register(scope.registry());
  HarmonicGraph g = through("my_act");
  CHECK(first(g) == 18);
}
