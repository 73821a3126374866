// HarmonicGraph::configure_layer: arguments of functions change between runs and between two steps.
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "tests/engine/embed/lines.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine::testing;

namespace {

// Returns a graph without weights. `slope` is an argument of leaky_relu: the factor of negative inputs.
HarmonicGraph leaky(const std::string& arguments = "") {
  return parse_hmx_text("harmonic h { producer x {2}; layer o; cycle { x -(leaky_relu" + arguments + ")-> o; } }");
}
// Reads the factor from the result for the input -1.
float slope_of(HarmonicGraph& g) { return -g.infer(HTensor::from<float>({2}, {-1, 1})).data<float>()[0]; }

HarmonicGraph deep() {
  HarmonicGraph g = parse_hmx_text(
      "harmonic line { producer x; producer y; layer h; layer o {1}; cycle { x -(affine(8), leaky_relu)-> h; "
      "h -(dropout(0.1), affine)-> o; o <-(mse)- y; } }");
  bind_line(g);
  return g;
}

}  // namespace

TEST_CASE("configure: a new value applies at once, and the returned values restore the former ones") {
  HarmonicGraph g = leaky();
  const float before = slope_of(g);
  auto former = g.configure_layer("o", {{"slope", "0.5"}});
  CHECK(slope_of(g) == 0.5f);
  CHECK(former == std::map<std::string, std::string>{{"slope", ""}});
  former = g.configure_layer("o", {{"leaky_relu.slope", "0.25"}});
  CHECK(slope_of(g) == 0.25f);
  CHECK(former.at("leaky_relu.slope") == "0.5");
  g.configure_layer("o", former);
  CHECK(slope_of(g) == 0.5f);
  g.configure_layer("o", {{"slope", ""}});
  CHECK(slope_of(g) == before);
  HarmonicGraph positional = leaky("(0.75)");
  CHECK(positional.configure_layer("o", {{"slope", "0.5"}}).at("slope") == "0.75");
  CHECK(slope_of(positional) == 0.5f);
  positional.configure_layer("o", {{"slope", ""}});
  CHECK(slope_of(positional) == before);
}

TEST_CASE("configure: changed arguments are saved with the graph") {
  HarmonicGraph g = deep();
  g.fit(line_options(2));
  g.configure_layer("h", {{"slope", "0.5"}});
  HarmonicGraph again = parse_blob(g.data(), g.size());
  CHECK(asked(again, -3, 2) == asked(g, -3, 2));
  CHECK(again.configure_layer("h", {{"slope", ""}}).at("slope") == "0.5");
}

TEST_CASE("configure: invalid changes are refused and leave the graph unchanged") {
  HarmonicGraph g = deep();
  g.fit(line_options(2));
  const float before = asked(g, 0.5f, 0.5f);
  const auto refused_change = [&](const char* layer, const char* argument, const char* value) {
    return message_of([&] { g.configure_layer(layer, {{argument, value}}); });
  };
  CHECK(refused_change("hh", "slope", "0.5").find("'line' has no layer 'hh'\ndid you mean 'h'?") != std::string::npos);
  CHECK(refused_change("h", "slop", "0.5").find("no function into 'h' has an argument 'slop'\ndid you mean 'slope'?") !=
        std::string::npos);
  CHECK(refused_change("h", "slope", "steep").find("'slope' takes a number, not 'steep'") != std::string::npos);
  CHECK(refused_change("o", "rate", "1.5") != "no error");  // out of range
  const std::string wider = refused_change("h", "width", "16");
  CHECK(wider != "no error");  // the weights have width 8
  CHECK(asked(g, 0.5f, 0.5f) == before);
  g.configure_layer("o", {{"rate", "0.2"}});
  CHECK(asked(g, 0.5f, 0.5f) == before);  // evaluation has no dropout
  CHECK(g.fit(line_options(2)).steps == 14);
}

TEST_CASE("configure: between two steps of a run") {
  HarmonicGraph g = deep();
  bool done = false;
  FitOptions o = line_options(20);
  std::string former;
  float within = 0;
  o.progress = [&](const FitProgress& p) {
    if (done || p.step >= 140) return true;
    done = true;
    former = g.configure_layer("h", {{"slope", "0.5"}}).at("slope");
    within = asked(g, -3, 2);
    CHECK(message_of([&] { g.configure_layer("h", {{"width", "16"}}); }) != "no error");
    CHECK(asked(g, -3, 2) == within);
    return true;
  };
  const FitReport r = g.fit(o);
  REQUIRE(done);
  CHECK(former.empty());
  CHECK(r.steps == 140);
  CHECK(std::any_of(r.notes.begin(), r.notes.end(), [](const std::string& note) {
    return note.find("'h' has slope = 0.5 after step ") != std::string::npos;
  }));
  CHECK(g.configure_layer("h", {{"slope", ""}}).at("slope") == "0.5");
}

TEST_CASE("configure: from another thread during a run") {
  HarmonicGraph g = deep();
  std::thread other;
  FitOptions o = line_options(1000000);
  std::atomic<bool> stop{false};
  std::string message = "not called";
  o.progress = [&](const FitProgress&) {
    if (!other.joinable())
      other = std::thread([&] {
        message = message_of([&] { g.configure_layer("h", {{"slope", "0.5"}}); });
        stop = true;
      });
    return !stop;
  };
  const FitReport r = g.fit(o);
  other.join();
  CHECK(message == "no error");
  CHECK(r.stopped_by == "interrupt");
  CHECK(g.configure_layer("h", {{"slope", ""}}).at("slope") == "0.5");
}
