// Lowering of graphs to programs: what is shared, frozen, counted and rejected.
#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "engine/model/safetensors.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/message_of.hpp"

namespace fs = std::filesystem;
using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

LoweringOptions lowering_options(Mode mode, int64_t batch = 2) {
  LoweringOptions o;
  o.mode = mode;
  o.batch = batch;
  o.optimizer = parse_optimizer("sgd");
  return o;
}

std::string saved(BoundGraph& g, const char* name) {
  const fs::path path = fs::temp_directory_path() / (std::string("harmonics_lowering_") + name + ".safetensors");
  save_safetensors(g.weights(), path.string());
  return path.string();
}

constexpr const char* kReluNet = R"(harmonic g {
  producer x {3}; producer y {2}; layer a {4}; layer b;
  cycle { x -(relu)-> a -> b; b <-(cross_entropy)- y; }
})";

void bind_relu_net(BoundGraph& g) {
  bind_rows(g, "x", {3}, numbers(60));
  std::vector<uint8_t> labels;
  for (int i = 0; i < 20; ++i) labels.push_back(static_cast<uint8_t>(i % 2));
  bind_rows(g, "y", {}, labels);
}

}  // namespace

TEST_CASE("lowering: a program knows which inputs are class numbers") {
  auto g = graph_of(R"(harmonic g {
    producer x; producer n {1}; producer y {3}; layer e; layer o {3};
    cycle { x -(embed(2, vocabulary=5))-> e -> o; n -> o; o <-(cross_entropy)- y; }
  })");
  bind_rows<int32_t>(*g, "x", {}, {0, 1});
  bind_rows<int32_t>(*g, "n", {1}, {-7, 70});
  bind_rows<int64_t>(*g, "y", {}, {0, 2});
  CHECK(g->lower(lowering_options(Mode::train)).index_limits == std::vector<int64_t>{5, 0, 3});
  CHECK(g->lower(lowering_options(Mode::infer)).index_limits == std::vector<int64_t>{5, 0});
}

TEST_CASE("lowering: a layer with several taps is reported once") {
  auto g = graph_of(R"(harmonic g {
    producer x {3}; producer y {2}; producer z {2}; layer b {2};
    cycle { x -> b; b <-(cross_entropy, cross_entropy(weight=0.5))- y; b <-(cross_entropy)- z; }
  })");
  g->assume_declared_streams();
  const Lowered l = g->lower(lowering_options(Mode::train));
  REQUIRE(l.losses.size() == 1);
  CHECK(l.losses[0].accuracy);
  CHECK(l.losses[0].counted == 2);
}

TEST_CASE("lowering: frozen weights do not change, and only= changes what it names") {
  const auto run = [](const std::string& flow) {
    auto g = graph_of("harmonic g { producer x {3}; producer y {1}; layer a {4}; layer b {1}; cycle (steps 2) { " +
                      flow + " } }");
    bind_rows(*g, "x", {3}, numbers(12));
    bind_rows(*g, "y", {1}, numbers(4));
    declare(*g);
    std::map<std::string, std::vector<float>> before;
    for (const auto& [name, t] : g->store().all()) before[name] = weights(*g, name);
    CycleRuntime(*g, 0, settings(4)).run();
    std::vector<std::string> moved;
    for (const auto& [name, values] : before)
      if (weights(*g, name) != values) moved.push_back(name);
    return moved;
  };
  using Names = std::vector<std::string>;
  CHECK(run("x -(tanh)-> a -> b; b <- y;").size() == 4);
  CHECK(run("x -(tanh(freeze=true))-> a -> b; b <- y;") == Names{"a.b.affine.bias", "a.b.affine.weight"});
  CHECK(run("x -(tanh)-> a -> b; b <-(mse(only=\"x.*\"))- y;") == Names{"x.a.affine.bias", "x.a.affine.weight"});
  CHECK(message_of([&] {
          run("x -(tanh)-> a -> b; b <-(mse(only=\"q*\"))- y;");
        }).find("only=\"q*\" matches no parameter") == 0);
}

TEST_CASE("lowering: a tied map shares one weight between two arrows, and its gradients add up") {
  auto g = graph_of(R"(harmonic g {
    producer x {2}; producer y {2}; layer a {2}; layer b {2};
    cycle (steps 1) { x -(affine(bias=false))-> a; a -(affine(tied=a, bias=false))-> b; b <- y; }
  })");
  bind_rows<float>(*g, "x", {2}, {1, 0});
  bind_rows<float>(*g, "y", {2}, {0, 0});
  declare(*g);
  REQUIRE(g->store().all().size() == 1);
  set_weights(*g, "x.a.affine.weight", {2, 0, 0, 3});
  RunSettings s = settings(1);
  s.optimizer = "sgd(lr=0.125)";
  CycleRuntime(*g, 0, s).run();
  // b = (w0 w0, 0), so only w0 has a gradient.
  const std::vector<float> w = weights(*g, "x.a.affine.weight");
  CHECK(w[0] != 2);
  CHECK(w[1] == 0);
  CHECK(w[3] == 3);
}

TEST_CASE("lowering: weights of another graph are refused, missing ones are initialised") {
  auto trained = graph_of(kReluNet);
  bind_relu_net(*trained);
  RunSettings s = settings(4);
  s.epochs = 1;
  CycleRuntime(*trained, 0, s).run();
  const std::string file = saved(*trained, "net");

  auto other = graph_of(
      "harmonic g { producer p {3}; producer q {2}; layer c {4}; layer d; cycle { p -(relu)-> c -> d; d "
      "<-(cross_entropy)- q; } }");
  CHECK(message_of([&] { other->load_weights(file); }).find("none of the 4 tensors of " + file + " belongs to 'g'") ==
        0);

  auto longer = graph_of(
      "harmonic g { producer x {3}; producer y {2}; layer a {4}; layer m {5}; layer b; cycle { x -(relu)-> a -> m -> "
      "b; b <-(cross_entropy)- y; } }");
  longer->load_weights(file);
  bind_relu_net(*longer);
  CHECK(message_of([&] { longer->lower(lowering_options(Mode::infer)); }).find("lacks weights the graph needs") !=
        std::string::npos);
  CycleRuntime(*longer, 0, s).run();
  bind_test(*longer, "x", {3}, numbers(6));
  bind_test<uint8_t>(*longer, "y", {}, {0, 1});
  CHECK(evaluate(*longer, 0, longer->test_streams(), s).samples == 2);
  fs::remove(file);
}

TEST_CASE("lowering: without its tap a graph infers, with or without bound labels") {
  auto trained = graph_of(kReluNet);
  bind_relu_net(*trained);
  RunSettings s = settings(4);
  s.epochs = 2;
  CycleRuntime(*trained, 0, s).run();
  const std::string file = saved(*trained, "infer");
  std::vector<float> first;
  for (const bool labels : {false, true}) {
    Graph graph = make_graph(parse_flow(std::make_shared<SourceText>("test.hmx", kReluNet)), Registry::global());
    graph.taps.clear();
    BoundGraph g(std::move(graph));
    g.load_weights(file);
    if (labels)
      bind_relu_net(g);
    else
      bind_rows(g, "x", {3}, numbers(60));
    const auto kept = keep(g, "");
    CycleRuntime(g, 0, settings(7)).run();
    CHECK(kept->samples == 20);
    if (first.empty()) first = kept->values;
    CHECK((kept->values == first));
  }
  fs::remove(file);
}

TEST_CASE("lowering: a joint sample is the same with and without its labels") {
  constexpr const char* kPairs =
      "harmonic g { producer x; producer y {1} 1/2 x; layer o {1}; cycle { x -(affine(1))-> o; o <- y; } }";
  auto both = graph_of(kPairs);
  bind_rows(*both, "x", {3}, numbers(12));
  bind_rows(*both, "y", {1}, numbers(2));
  CHECK(both->types().at(0).sample == Shape{2, 3});
  auto alone = graph_of(kPairs);
  bind_rows(*alone, "x", {3}, numbers(12));
  CHECK(alone->types().at(0).sample == Shape{2, 3});
}

namespace {

constexpr const char* kNormTwice = R"(harmonic g {
  producer x {2}; producer z {2}; producer y {2}; layer a {2}; layer b {2};
  cycle { x -(norm("batch", name="bn"))-> a; z -(norm("batch", name="bn"))-> b; a <- y; b <- y; }
})";

void bind_two(BoundGraph& g) {
  bind_rows<float>(g, "x", {2}, {1, 2, 3, 6, 5, 10, 7, 14});
  bind_rows<float>(g, "z", {2}, {0, -1, 4, -3, 8, -5, 12, -7});
  bind_rows<float>(g, "y", {2}, std::vector<float>(8));
}
// Returns the mean of the first of two numbers over samples [from, to).
float mean_of(const std::vector<float>& first, size_t from, size_t to) {
  return std::accumulate(first.begin() + static_cast<std::ptrdiff_t>(from),
                         first.begin() + static_cast<std::ptrdiff_t>(to), 0.0f) /
         static_cast<float>(to - from);
}
const std::vector<float> kX{1, 3, 5, 7}, kZ{0, 4, 8, 12};

}  // namespace

TEST_CASE("norm: a shared one updates its running statistics at each use, in order") {
  auto g = graph_of(kNormTwice);
  bind_two(*g);
  RunSettings s = settings(4);
  s.steps = 1;
  CycleRuntime(*g, 0, s).run();
  CHECK(weights(*g, "bn.running_mean")[0] == Approx(0.9f * 0.1f * mean_of(kX, 0, 4) + 0.1f * mean_of(kZ, 0, 4)));
  const float of_x = 20.0f / 3, of_z = 80.0f / 3;  // unbiased
  CHECK(weights(*g, "bn.running_variance")[0] == Approx(0.9f * (0.9f + 0.1f * of_x) + 0.1f * of_z));
}

TEST_CASE("norm: a shared one updates its running statistics for each batch of an accumulated step") {
  auto g = graph_of(kNormTwice);
  bind_two(*g);
  RunSettings s = settings(2);
  s.steps = 1;
  s.accumulate = 2;
  s.shuffle = false;
  CycleRuntime(*g, 0, s).run();
  float mean = 0;
  for (const size_t from : {0, 2})
    for (const auto* of : {&kX, &kZ}) mean = 0.9f * mean + 0.1f * mean_of(*of, from, from + 2);
  CHECK(weights(*g, "bn.running_mean")[0] == Approx(mean));
}

TEST_CASE("norm: cycles that share one update its running statistics in turn") {
  auto g = graph_of(R"(harmonic g {
    producer x {2}; producer z {2}; producer y {2}; layer a {2}; layer b {2};
    cycle { x -(norm("batch", name="bn"))-> a; a <- y; }
    cycle { z -(norm("batch", name="bn"))-> b; b <- y; }
  })");
  bind_two(*g);
  RunSettings s = settings(4);
  s.steps = 1;
  for (const int cycle : {0, 1}) CycleRuntime(*g, cycle, s).run();
  CHECK(weights(*g, "bn.running_mean")[0] == Approx(0.9f * 0.1f * mean_of(kX, 0, 4) + 0.1f * mean_of(kZ, 0, 4)));
}
