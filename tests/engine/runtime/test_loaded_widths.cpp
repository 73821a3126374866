// Loaded weights determine a layer's width, for every kind of function.
#include <catch2/catch.hpp>

#include <filesystem>

#include "engine/model/safetensors.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/message_of.hpp"

namespace fs = std::filesystem;
using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

TensorFile learned(const std::string& flow, const Shape& x, const Shape& y) {
  auto g = graph_of(flow);
  bind_rows(*g, "x", x, numbers(static_cast<size_t>(x.count()) * 4));
  bind_rows(*g, "y", y, numbers(static_cast<size_t>(y.count()) * 4));
  CycleRuntime(*g, 0, settings(4)).run();
  return g->weights();
}

// Returns the widths of a flow without its taps, given trained weights.
std::unique_ptr<BoundGraph> without_taps(const std::string& flow, const TensorFile& weights, const Shape& x) {
  Graph graph = make_graph(parse_flow(std::make_shared<SourceText>("test.hmx", flow)), Registry::global());
  graph.taps.clear();
  auto g = std::make_unique<BoundGraph>(std::move(graph));
  g->load_weights(weights, "w");
  bind_rows(*g, "x", x, numbers(static_cast<size_t>(x.count()) * 4));
  return g;
}

Shape width(BoundGraph& g, const char* layer) { return g.widths().of.at(g.graph().find(layer)).shape; }

}  // namespace

TEST_CASE("loaded widths: weights of any function give the width, with and without a bias") {
  const std::string
      before =
          "harmonic g { producer x {*, 5}; producer y {*, 6}; layer a {*, 4}; layer b; cycle (steps 1) { x -> a -(",
      after = ")-> b; b <- y; } }";
  for (const char* head : {"affine(bias=false)", "affine", "affine(bias=false), prelu", "norm, affine(bias=false)",
                           "affine(bias=false, name=\"m\")", "lstm(bias=false)", "gru(bias=false)",
                           "lstm(bias=false, bidirectional=true)", "gru(bidirectional=true)",
                           "affine(9, bias=false), affine(bias=false)", "attention(bias=false), affine(bias=false)"}) {
    INFO(head);
    const std::string flow = before + head + after;
    const TensorFile weights = learned(flow, {3, 5}, {3, 6});
    auto g = without_taps(flow, weights, {3, 5});
    CHECK(width(*g, "b") == Shape{3, 6});
    LoweringOptions o;
    o.mode = Mode::infer;
    g->lower(o);
  }
}

TEST_CASE("loaded widths: a tied weight gives the width of its target") {
  const std::string flow =
      "harmonic g { producer x {*, 7}; producer y {*, 7}; layer a {*, 4}; layer o; cycle (steps 1) { x -(embed)-> a "
      "-(affine(tied=a, bias=false))-> o; o <- y; } }";
  auto trained = graph_of(flow);
  bind_rows<int32_t>(*trained, "x", {3}, std::vector<int32_t>(12, 6));
  bind_rows(*trained, "y", {3, 7}, numbers(84));
  CycleRuntime(*trained, 0, settings(4)).run();
  Graph graph = make_graph(parse_flow(std::make_shared<SourceText>("test.hmx", flow)), Registry::global());
  graph.taps.clear();
  BoundGraph g(std::move(graph));
  g.load_weights(trained->weights(), "w");
  bind_rows<int32_t>(g, "x", {3}, std::vector<int32_t>(12, 6));
  CHECK(width(g, "o") == Shape{3, 7});
  CHECK(g.widths().of.at(g.graph().find("o")).reason == "loaded weights");
}

TEST_CASE("loaded widths: without weights and tap, the weight of another arrow gives the width") {
  auto g = graph_of(
      "harmonic g { producer x {*, 7}; layer a {*, 4}; layer o; cycle { x -(embed)-> a -(affine(tied=a, "
      "bias=false))-> o; } }");
  bind_rows<int32_t>(*g, "x", {3}, std::vector<int32_t>(12, 6));
  CHECK(width(*g, "o") == Shape{3, 7});
  CHECK(g->widths().of.at(g->graph().find("o")).reason == "the weights it shares");

  auto later = graph_of("harmonic g { producer x {4}; layer a; layer o {4}; cycle { x -(affine(tied=o))-> a -> o; } }");
  bind_rows(*later, "x", {4}, numbers(16));
  CHECK(width(*later, "a") == Shape{4});  // as its source: the width of 'o' depends on it
}

TEST_CASE("loaded widths: initial weights of a function give its width") {
  const fs::path file = fs::temp_directory_path() / "harmonics_loaded_widths.safetensors";
  const std::string first =
      "harmonic g { producer x {5}; producer y {6}; layer b; cycle (steps 1) { x -(affine(bias=false))-> b; b <- y; } "
      "}";
  save_safetensors(learned(first, {5}, {6}), file.string());
  auto g = graph_of("harmonic g { producer x {5}; layer b; layer c {2}; cycle { x -(affine(bias=false, weights=\"" +
                    file.string() + "\"))-> b -> c; } }");
  bind_rows(*g, "x", {5}, numbers(20));
  g->allow_weights_in(fs::temp_directory_path().string());
  CHECK(width(*g, "b") == Shape{6});
  LoweringOptions o;
  o.mode = Mode::infer;
  g->lower(o);
  fs::remove(file);
}

TEST_CASE("loaded widths: shared weights have one shape across branches, cycles and names") {
  const auto message = [](const std::string& flow) {
    auto g = graph_of("harmonic g { producer x {4}; producer y {2}; layer h {8}; layer o {2}; " + flow + " }");
    g->assume_declared_streams();
    return message_of([&] { g->widths(); });
  };
  CHECK(message("cycle { x -> h; if loss < 1 { h -> o; } else { h -(affine(6), relu, affine)-> o; } o <- y; }")
            .find("'h.o.affine.weight' is shared, and is f32[6, 8] here, but f32[2, 8] where it is used first") == 0);
  CHECK(message("cycle { x -> h; if loss < 1 { h -> o; } else { h -(affine(6, name=\"second\"), relu, "
                "affine(name=\"third\"))-> o; } o <- y; }") == "no error");
  CHECK(message("cycle { x -> h -> o; o <- y; } cycle { x -> h -> o; o <- y; }") == "no error");
  CHECK(message(
            "layer i {3}; cycle { x -(affine(name=\"m\"))-> h; x -(affine(name=\"m\"))-> i; h -> o; i -> o; o <- y; }")
            .find("'m.weight' is shared, and is f32[3, 4] here, but f32[8, 4]") == 0);
  CHECK(message("layer i {3}; cycle { x -> h -(affine(tied=h))-> i; i -> o; o <- y; }")
            .find("'x.h.affine.weight' is shared, and is f32[3, 8] here, but f32[8, 4]") == 0);
}
