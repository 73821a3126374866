// The meaning of a declared shape for class indices, and rejection of ambiguous declarations.
#include <catch2/catch.hpp>

#include <cmath>

#include "engine/measure/evaluate.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::string flow_of(const std::string& label, const std::string& output, const std::string& loss) {
  return "harmonic g { producer x {*, 2}; producer y" + label + "; layer o" + output +
         "; cycle { x -(sigmoid)-> o; o <-(" + loss + ")- y; } }";
}

// Returns the type of stream `name` as the graph uses it.
StreamType type_of(BoundGraph& g, const char* name) { return g.types().at(g.graph().find(name)); }

LoweringOptions options() {
  LoweringOptions o;
  o.optimizer = parse_optimizer("sgd");
  return o;
}

double sigmoid_loss(double x, int c) { return std::log1p(std::exp(c ? -x : x)); }

}  // namespace

TEST_CASE("declared shape: a sequence of one position has one class per position") {
  for (const Shape& sample : {Shape{}, Shape{1}, Shape{1, 1}})
    for (const char* loss : {"cross_entropy", "hinge", "binary_cross_entropy"}) {
      INFO(loss << " of samples " << sample.str());
      auto g = graph_of(flow_of(" {*, 3}", " {*, 3}", loss));
      bind_rows(*g, "x", {1, 2}, numbers(12));
      bind_rows<int64_t>(*g, "y", sample, {0, 1, 2, 0, 1, 2});
      CHECK(type_of(*g, "y").sample == Shape{1});
      CHECK(type_of(*g, "y").positions == 1);
      RunSettings s = settings(6);
      s.epochs = 1;
      CHECK(std::isfinite(CycleRuntime(*g, 0, s).run().loss));
    }
}

TEST_CASE("labels: those of a sequence may be a column") {
  auto g = graph_of(flow_of(" {*, 2}", " {*, 2}", "cross_entropy"));
  bind_rows(*g, "x", {4, 2}, numbers(24));
  bind_rows<uint8_t>(*g, "y", {4, 1}, {0, 1, 1, 0, 1, 1, 0, 0, 1, 0, 1, 0});
  CHECK(type_of(*g, "y").sample == Shape{4});
  CHECK(type_of(*g, "y").classes == 2);
}

TEST_CASE("bytes: in a sequence of one position they are classes, not scaled by 255") {
  for (const char* declared : {" {*, 1}", " {*, 2}"}) {
    auto g = graph_of("harmonic g { producer x {*, 1}; producer y" + std::string(declared) +
                      "; layer o {*, 1}; cycle { x -(sigmoid)-> o; o <-(binary_cross_entropy)- y; } }");
    for (const bool test : {false, true}) {
      const auto put = [&](const char* name, auto sample, auto values) {
        test ? bind_test(*g, name, sample, values) : bind_rows(*g, name, sample, values);
      };
      put("x", Shape{1, 1}, std::vector<float>{-2, -1, 1, 2});
      put("y", Shape{1}, std::vector<uint8_t>{0, 1, 1, 1});
    }
    declare(*g);
    set_weights(*g, "x.o.affine.weight", {1});
    set_weights(*g, "x.o.affine.bias", {0});
    const Evaluation e = evaluate(*g, 0, g->test_streams(), settings(4));
    CHECK(e.accuracy == Approx(0.75));
    CHECK(e.loss == Approx((sigmoid_loss(-2, 0) + sigmoid_loss(-1, 1) + sigmoid_loss(1, 1) + sigmoid_loss(2, 1)) / 4));
  }
}

TEST_CASE("integers: refused if they could be classes or numbers") {
  const auto message = [](const std::string& flow, Shape x, const Shape& y, auto labels) {
    auto g = graph_of(flow);
    bind_rows(*g, "x", x, numbers(static_cast<size_t>(x.count()) * 6));
    bind_rows(*g, "y", y, labels);
    return message_of([&] { g->lower(options()); });
  };
  const std::vector<uint8_t> bytes{0, 1, 1, 0, 1, 0};
  CHECK(message("harmonic g { producer x {*, 2}; producer y; layer o {*, 1}; cycle { x -(sigmoid)-> o; o "
                "<-(binary_cross_entropy)- y; } }",
                {1, 2}, {1}, bytes)
            .find("'y' of shape [1] (batch axis first) matches neither classes nor values for the output 'o' of shape "
                  "[1, 1, 1]") == 0);
  const std::string flat =
      "harmonic g { producer x {2}; producer y {3}; layer o {3}; cycle { x -(sigmoid)-> o; o <-(binary_cross_entropy)- "
      "y; } }";
  std::vector<uint8_t> hot(18, 1);
  CHECK(message(flat, {2}, {3}, hot)
            .find("'y' of shape [1, 3] (batch axis first) gives a byte for each output of 'o', and bytes are scaled to "
                  "[0, 1]: a 1 would count as 1/255") == 0);
  CHECK(message(flat, {2}, {3}, std::vector<int32_t>(18, 1)) == "no error");
  CHECK(message(flat, {2}, {3}, std::vector<float>(18, 1)) == "no error");
  CHECK(message("harmonic g { producer x {2}; producer y {3}; layer s; layer o {3}; cycle { x -(sigmoid)-> o; y -> s; "
                "o <-(cross_entropy)- s; } }",
                {2}, {3}, hot)
            .find("'s' of shape [1, 3]") == 0);
  CHECK(message("harmonic g { producer x {2}; producer y {3}; layer s; layer o {3}; cycle { x -(sigmoid)-> o; y "
                "-(identity)-> s; o <-(binary_cross_entropy)- s; } }",
                {2}, {3}, hot) == "no error");
}

TEST_CASE("bytes: inputs and targets are scaled to the same numbers") {
  auto g = graph_of(
      "harmonic g { producer x {3}; layer h {2}; layer o {3}; cycle { x -(tanh)-> h -(sigmoid)-> o; o "
      "<-(binary_cross_entropy)- x; } }");
  bind_rows<uint8_t>(*g, "x", {3}, {0, 255, 0, 255, 255, 0});
  RunSettings s = settings(2);
  s.epochs = 300;
  s.lr = 0.1;
  CHECK(CycleRuntime(*g, 0, s).run().by_epoch.back().loss < 0.1);
}

TEST_CASE("declared classes: only embed uses their number") {
  for (const Shape& sample : {Shape{8}, Shape{8, 1}}) {
    auto trains = graph_of(
        "harmonic g { producer w {*, 4}; layer e {*, 3}; layer o; cycle (steps 2) { w -(embed)-> e -> o; o "
        "<-(next_token)- w; } }");
    auto infers =
        graph_of("harmonic g { producer w {*, 4}; layer e {*, 3}; layer o {*, 4}; cycle { w -(embed)-> e -> o; } }");
    for (BoundGraph* g : {trains.get(), infers.get()}) {
      bind_rows<int32_t>(*g, "w", sample, std::vector<int32_t>(32, 3));  // 4 divides 8: not positions of 4 values
      CHECK(type_of(*g, "w").sample == Shape{8});
      CHECK(type_of(*g, "w").positions == 1);
      CHECK(type_of(*g, "w").classes == 4);
      CHECK(g->widths().of.at(g->graph().find("o")).shape == Shape{8, 4});
    }
    CycleRuntime(*trains, 0, settings(4)).run();
  }
}

TEST_CASE("declared shape: a stream layer's applies to its producer") {
  auto g = graph_of(
      "harmonic g { producer x {*, 2}; producer y {*, 3}; layer s; layer o {*, 3}; cycle { x -> o; y -> s; o "
      "<-(cross_entropy)- s; } }");
  bind_rows(*g, "x", {4, 2}, numbers(16));
  bind_rows<int32_t>(*g, "y", {4}, {0, 1, 2, 0, 1, 2, 0, 1});
  CHECK(type_of(*g, "y").classes == 3);
  RunSettings s = settings(2);
  s.epochs = 1;
  CHECK(std::isfinite(CycleRuntime(*g, 0, s).run().loss));
}

TEST_CASE("declared shape: a shape of numbers stays a shape if the counts match") {
  auto g = graph_of(
      "harmonic g { producer x {4}; producer y {1}; layer e; layer o; cycle { x -(embed(2, vocabulary=9))-> e -> o; o "
      "<- y; } }");
  bind_rows<int32_t>(*g, "x", {4}, {8, 1, 2, 3, 4, 5, 6, 7});
  bind_rows<float>(*g, "y", {1}, {0, 1});
  CHECK(type_of(*g, "x").sample == Shape{4});
  CHECK(type_of(*g, "x").positions == 0);
  g->lower(options());
}

TEST_CASE("classes: a counted number is what the data can show, a declared number is used as is") {
  const auto widths = [](const std::string& declared, int64_t largest) {
    auto g = graph_of("harmonic g { producer x {2}; producer y" + declared +
                      "; layer h {2}; layer o; cycle { x -> h; h -> o; o <-(cross_entropy)- y; } }");
    bind_rows(*g, "x", {2}, numbers(12));
    bind_rows<int64_t>(*g, "y", Shape{}, {0, 1, 1, 0, 1, largest}, largest + 1);
    std::string said = message_of([&] { g->widths(); });
    if (said == "no error")
      for (const std::string& note : g->widths().notes) said += "\n" + note;
    return said;
  };
  CHECK(widths("", 999) == "no error");
  CHECK(widths("", 60'000) ==
        "no error\nthe largest number of 'y' is 60000, which makes 60001 classes of 6 numbers: most of them have no "
        "sample; "
        "correct the number, or declare the classes: producer y {60001};");
  CHECK(widths("", 1'500'000) ==
        "the largest number of 'y' is 1500000, which makes 1500001 classes of 6 numbers\n"
        "correct the number, or declare the classes: producer y {1500001};");
  CHECK(widths("", int64_t{1} << 40).find("the largest number of 'y' is 1099511627776") == 0);
  CHECK(widths(" {1500001}", 1'500'000) == "no error");
}
