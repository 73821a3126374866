// Graphs: all errors in names, functions and widths by their full text, and the graphs of valid flows.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "dsl/load.hpp"
#include "engine/bound/bound_graph.hpp"
#include "engine/flow/graph.hpp"

namespace fs = std::filesystem;
using namespace harmonics;
using namespace harmonics::engine;

namespace {

const fs::path kHere = fs::path(HARMONICS_SOURCE_DIR) / "tests/engine/runtime";

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

std::vector<std::string> trained_names(BoundGraph& graph, const LoweringOptions& options) {
  std::vector<std::string> names;
  for (const TrainedParameter& p : graph.lower(options).trained) names.push_back(p.name);
  return names;
}

std::vector<fs::path> flows(const std::string& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(kHere / folder))
    if (entry.path().extension() == ".hmx") found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  REQUIRE(!found.empty());
  return found;
}

void check_golden(const fs::path& flow, const std::string& got) {
  fs::path golden = flow;
  golden.replace_extension(".error");
  if (std::getenv("UPDATE_GOLDEN")) std::ofstream(golden, std::ios::binary) << got;
  INFO(flow.string());
  CHECK(got == read(golden));
}

std::shared_ptr<SourceText> source(const fs::path& path) {
  return std::make_shared<SourceText>(path.filename().string(), read(path));
}
Graph made_graph(const std::string& text) {
  return make_graph(parse_flow(std::make_shared<SourceText>("test.hmx", text)), Registry::global());
}

}  // namespace

TEST_CASE("graph: errors in names and functions give location and remedy") {
  for (const fs::path& path : flows("bad")) {
    std::string got = "accepted\n";
    try {
      make_graph(parse_flow(source(path)), Registry::global());
    } catch (const Error& e) {
      got = e.what();
    }
    check_golden(path, got);
  }
}

TEST_CASE("graph: errors in widths give location and remedy") {
  for (const fs::path& path : flows("widths_bad")) {
    const auto text = source(path);
    std::string got = "accepted\n";
    try {
      BoundGraph graph(make_graph(parse_flow(text), Registry::global()));
      graph.assume_declared_streams();
      LoweringOptions o;
      o.batch = 2;
      o.optimizer = parse_optimizer("sgd");
      o.branches = {1};
      graph.lower(o);
    } catch (const Error& e) {
      got = text->render(e);
    }
    check_golden(path, got);
  }
}

TEST_CASE("graph: arrows, pipes, taps and streams have the meaning of the language") {
  const Graph g = made_graph(R"(harmonic g {
    producer x {6}; producer y {2};
    layer s; layer a 1/2 x; layer b {4}; layer c {2};
    cycle { x -(relu)-> s; x -(relu)-> a -> b | -(tanh)-> c; b <-(mse, mae(weight=0.5))- y -> c; }
  })");
  const auto edge = [&](const char* from, const char* to) {
    return std::find_if(g.edges.begin(), g.edges.end(),
                        [&](const GraphEdge& e) { return e.source == g.find(from) && e.target == g.find(to); });
  };
  REQUIRE(edge("x", "s") != g.edges.end());
  CHECK(edge("x", "s")->is_stream);
  CHECK(edge("x", "s")->calls.size() == 1);
  CHECK(edge("x", "a")->calls.size() == 2);  // the implied map comes first
  CHECK(edge("x", "a")->calls[0].item->name == "affine");
  CHECK(edge("x", "c") != g.edges.end());  // after '|' the line's own source is used
  CHECK(edge("b", "c") != g.edges.end());  // a tap does not move the end of the chain
  REQUIRE(g.taps.size() == 1);
  CHECK(g.taps[0].losses[1].loss_weight == 0.5);
}

TEST_CASE("graph: a tap's target takes precedence over a ratio, and the program reports it") {
  BoundGraph graph(made_graph(R"(harmonic g {
    producer x {784}; producer labels {10};
    layer input; layer hidden 1/2 input; layer output 1/2 hidden;
    cycle { x -(relu)-> input -(relu)-> hidden -(sigmoid)-> output; output <-(cross_entropy)- labels; }
  })"));
  graph.assume_declared_streams();
  const Widths& w = graph.widths();
  CHECK(w.of.at(graph.graph().find("hidden")).shape == Shape{392});
  CHECK(w.of.at(graph.graph().find("output")).shape == Shape{10});
  REQUIRE(w.notes.size() == 1);
  CHECK(w.notes[0] ==
        "layer 'output' is 10 wide because of the 10 classes of 'labels'; 1/2 of 'hidden' would suggest 196");
}

TEST_CASE("graph: an arrow in two cycles shares parameters, tied and frozen are respected") {
  BoundGraph graph(made_graph(R"(harmonic g {
    producer words {*, 11}; producer y {4};
    layer e {*, 4}; layer o {*, 11};
    cycle (steps 1) { words -(affine(4, bias=false))-> e -(affine(tied=e, bias=false))-> o; e <-(mse)- o; }
  })"));
  (void)graph;
  BoundGraph frozen(made_graph(R"(harmonic g {
    producer x {3}; producer y {2};
    layer a {4}; layer b {2};
    cycle { x -(relu(freeze=true))-> a -> b; b <-(mse)- y; }
    cycle { x -(relu)-> a -> b; b <-(mae)- y; }
  })"));
  frozen.assume_declared_streams();
  LoweringOptions o;
  o.batch = 2;
  o.optimizer = parse_optimizer("sgd");
  CHECK(trained_names(frozen, o) == std::vector<std::string>{"a.b.affine.weight", "a.b.affine.bias"});
  o.cycle = 1;
  CHECK(trained_names(frozen, o).size() == 4);
  size_t weights = 0;
  for (const auto& [name, t] : frozen.store().all()) weights += t.role == Role::weight || t.role == Role::frozen;
  CHECK(weights == 4);
}

TEST_CASE("graph: only= limits what a loss updates") {
  BoundGraph graph(made_graph(R"(harmonic g {
    producer x {3}; producer y {2};
    layer a {4}; layer b {2};
    cycle { x -(relu)-> a -> b; b <-(mse(only="a.b.*"))- y; }
  })"));
  graph.assume_declared_streams();
  LoweringOptions o;
  o.batch = 2;
  o.optimizer = parse_optimizer("adamw");
  CHECK(trained_names(graph, o) == std::vector<std::string>{"a.b.affine.weight", "a.b.affine.bias"});
}
