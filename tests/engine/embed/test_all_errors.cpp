// Errors of every stage of a flow, in text order, from the C++ API and the C functions.
#include <catch2/catch.hpp>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include <harmonics/harmonics.hpp>

#include "tests/engine/embed/lines.hpp"

using namespace harmonics;
using namespace harmonics::engine::testing;

namespace {

struct FourNumbers : Producer {
  HTensor next() override { return HTensor::from<float>({4}, {1, 2, 3, 4}); }
  std::size_t size() const override { return 1; }
  bool rewind() override { return true; }
};

struct Twice : ActivationFunction {
  HTensor operator()(const HTensor& x) const override { return x + x; }
};

// Returns the lines "text:LINE:COLUMN: error: ..." of a report.
std::vector<std::string> headlines(const std::string& report) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < report.size();) {
    const size_t end = std::min(report.find('\n', at), report.size());
    const std::string line = report.substr(at, end - at);
    if (line.find(": error: ") != std::string::npos) lines.push_back(line.substr(line.find(':')));
    at = end + 1;
  }
  return lines;
}

// Line by line: a duplicate, an unknown setting, a wrong argument, an unknown name, a wrong shape.
const std::string kNames =
    "harmonic all {\n"
    "  producer x {4}; producer y {3};\n"
    "  layer h {5}; layer h {6}; layer k {7}; layer o {4};\n"
    "  cycle (epohcs=2) {\n"
    "    x -(dropout(rate=2.5))-> k;\n"
    "    hiden -> k;\n"
    "    x -> o;\n"
    "    o <-(cross_entropy)- y;\n"
    "  }\n"
    "}\n";
// The same with an arrow that cannot be parsed.
const std::string kSyntax = std::string(kNames).insert(kNames.find("    x -> o;"), "    x -(relu-> k;\n");

const std::vector<std::string> kBefore = {
    ":3:22: error: layer 'h' has the name of another layer", ":4:10: error: unknown setting 'epohcs' of a cycle",
    ":5:22: error: 'rate' of layer 'dropout' is 2.5", ":6:5: error: unknown name 'hiden'"};

}  // namespace

TEST_CASE("all errors: a text with syntax errors is refused with the errors of all stages, in its order") {
  const std::vector<std::string> all = headlines(refused([] { parse_hmx_text(kSyntax); }));
  REQUIRE(all.size() == 5);
  for (size_t i = 0; i < kBefore.size(); ++i) CHECK(all[i] == kBefore[i]);
  CHECK(all[4] == ":7:13: error: missing ')' before '->'");
}

TEST_CASE("all errors: a text without syntax errors is refused by the first call that needs its names") {
  HarmonicGraph g = parse_hmx_text(kNames);
  const std::vector<std::string> all =
      headlines(refused([&] { g.bindProducer("x", std::make_shared<FourNumbers>()); }));
  REQUIRE(all.size() == 4);
  for (size_t i = 0; i < kBefore.size(); ++i) CHECK(all[i] == kBefore[i]);
}

TEST_CASE("all errors: shapes that the declarations determine are checked beside names") {
  const std::string text =
      "harmonic all {\n"
      "  producer pixels {4}; producer digit {3};\n"
      "  layer answer {4};\n"
      "  cycle (epohcs=2) {\n"
      "    pixels -> answer;\n"
      "    answer <-(cross_entropy)- digit;\n"
      "  }\n"
      "}\n";
  HarmonicGraph g = parse_hmx_text(text);
  const std::vector<std::string> all = headlines(refused([&] { g.layers(); }));
  const std::string wide = ":3:9: error: layer 'answer' is declared 4 wide, but the 3 classes of 'digit' requires 3";
  CHECK(all == std::vector<std::string>{wide, kBefore[1]});

  const std::string broken = std::string(text).insert(text.find("    pixels ->"), "    something -> ;\n");
  const std::vector<std::string> beside = headlines(refused([&] { parse_hmx_text(broken); }));
  CHECK(beside == std::vector<std::string>{wide, kBefore[1], ":5:15: error: an arrow without its target"});
}

TEST_CASE("all errors: names that the program may register later are not errors beside syntax errors") {
  const std::string text =
      "harmonic later {\n"
      "  producer x {4}; producer y {3}; layer h {5}; layer o {3};\n"
      "  cycle (optimizer=\"steps_of_mine\", schedule=\"rate_of_mine\", until o.score_of_mine > 1) {\n"
      "    x -(mine(strength=3))-> h -> o;\n"
      "    if mine_decides { o <-(loss_of_mine)- y; }\n"
      "    x -> ;\n"
      "  }\n"
      "}\n";
  const std::vector<std::string> all = headlines(refused([&] { parse_hmx_text(text); }));
  REQUIRE(all.size() == 1);
  CHECK(all[0] == ":6:7: error: an arrow without its target");

  ScopedRegistry scope;  // known names are checked
  scope.registerActivation("mine", std::make_shared<Twice>());
  const std::vector<std::string> known = headlines(refused([&] { parse_hmx_text(text); }));
  REQUIRE(known.size() == 2);
  CHECK(known[0].substr(0, 5) == ":4:14");
}

TEST_CASE("all errors: the errors of the chosen harmonic are reported beside syntax errors") {
  const std::string text =
      "harmonic one { producer x {2}; layer o; cycle { x -> o; nothing -> o; } }\n"
      "harmonic two { producer x {2}; layer o; cycle { x -> o; missing -> o; x -> ; } }\n";
  const std::string first = refused([&] { parse_hmx_text(text); }),
                    second = refused([&] { parse_hmx_text(text, "two"); });
  CHECK(headlines(first).size() == 2);
  CHECK(first.find("unknown name 'nothing'") != std::string::npos);
  CHECK(headlines(second).size() == 2);
  CHECK(second.find("unknown name 'missing'") != std::string::npos);
}

TEST_CASE("all errors: the C functions report them from text and from a file") {
  const hx_graph_api& graphs = *harmonics_graphs();
  const auto error_of = [&](hx_status status) {
    REQUIRE(status != HX_OK);
    uint32_t kind = 0;
    return headlines(harmonics_api()->last_error(&kind));
  };
  hx_graph* graph = nullptr;
  const std::vector<std::string> of_text = error_of(graphs.parse(kSyntax.c_str(), "text", nullptr, &graph));
  REQUIRE(of_text.size() >= 5);
  for (size_t i = 0; i < kBefore.size(); ++i) CHECK(of_text[i] == kBefore[i]);

  const std::string path = "/tmp/harmonics-all-errors-" + std::to_string(::getpid()) + ".hmx";
  std::ofstream(path) << kSyntax;
  CHECK(error_of(graphs.parse_file(path.c_str(), nullptr, &graph)) == of_text);
  std::remove(path.c_str());
  CHECK(graph == nullptr);

  REQUIRE(graphs.parse(kNames.c_str(), "text", nullptr, &graph) == HX_OK);
  const hx_layer_info* layers = nullptr;
  uint32_t count = 0;
  const std::vector<std::string> of_names = error_of(graphs.layers(graph, &layers, &count));
  graphs.destroy(graph);
  REQUIRE(of_names.size() == 4);
  for (size_t i = 0; i < kBefore.size(); ++i) CHECK(of_names[i] == kBefore[i]);
}
