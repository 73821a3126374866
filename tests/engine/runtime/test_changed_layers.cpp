// Arguments of layers that change between two steps of a run: which changes a run accepts, and what checkpoints keep.
#include <catch2/catch.hpp>

#include "engine/checkpoint/run_state.hpp"
#include "engine/cycle/run_control.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// `tag`: the functions into h.
std::string changed_flow(const std::string& tag, const std::string& rest = "o <-(mse)- y;") {
  return "harmonic g { producer x {1, 8, 8}; producer y {2}; layer h; layer o {2}; cycle { x -(" + tag +
         ")-> h; h -> o; " + rest + " } }";
}

Graph changed_graph(const std::string& text) {
  return make_graph(parse_flow(std::make_shared<SourceText>("test.hmx", text)), Registry::global());
}

struct ChangedOnce {
  CycleReport report;
  std::string message;  // of configure()
  bool kept = false;    // whether the weights are those from before configure()
};

// Trains, and switches to other functions after step 3.
ChangedOnce changed_once(const std::string& from, const std::string& to, bool controlled = true) {
  auto g = graph_of(from);
  bind_rows(*g, "x", {1, 8, 8}, numbers(64 * 16, 3));
  bind_rows(*g, "y", {2}, numbers(2 * 16, 5));
  RunSettings s = settings(4);
  s.epochs = 2;
  RunControl control("g");
  CycleRuntime runtime(*g, 0, s);
  if (controlled) runtime.set_control(&control);
  ChangedOnce result;
  runtime.on_step(3, [&](const StepReport& r) {
    if (r.step != 3) return;
    const std::string before = learned_bytes(*g);
    bool changed = false;
    result.message = message_of([&] { changed = runtime.configure(changed_graph(to), "h changes"); });
    CHECK(changed == (result.message == "no error"));
    result.kept = learned_bytes(*g) == before;
  });
  result.report = runtime.run();
  return result;
}

std::vector<std::string> kinds_of(const CycleReport& report) {
  std::vector<std::string> kinds;
  for (const RunEvent& event : report.events) kinds.push_back(event.kind + ": " + event.text);
  return kinds;
}

}  // namespace

TEST_CASE("changed layers: a change of an activation keeps the weights and is an event of the run") {
  const std::string from = changed_flow("conv(2, stride=2), leaky_relu, avgpool(4)"),
                    to = changed_flow("conv(2, stride=2), leaky_relu(slope=0.5), avgpool(4)");
  const ChangedOnce r = changed_once(from, to);
  CHECK(r.message == "no error");
  CHECK(r.kept);
  CHECK(r.report.steps == 8);
  CHECK(kinds_of(r.report) == std::vector<std::string>{"layer: h changes"});
  CHECK(r.report.notes.empty());
  const ChangedOnce alone = changed_once(from, to, false);
  CHECK(alone.report.notes == std::vector<std::string>{"h changes after step 3"});
  CHECK(alone.report.loss != changed_once(from, from).report.loss);
}

TEST_CASE("changed layers: a change is refused if weights would have other shapes, be new or be left out") {
  const auto refused = [](const std::string& from, const std::string& to) {
    const ChangedOnce r = changed_once(changed_flow(from), changed_flow(to));
    CHECK(r.kept);
    CHECK(r.report.steps == 8);
    CHECK(r.report.events.empty());
    return r.message;
  };
  CHECK_THAT(refused("conv(2), avgpool(4)", "conv(3), avgpool(4)"),
             Catch::StartsWith("the change needs other weights: 'h.o.affine.weight' would be f32[2, 12] instead of "
                               "f32[2, 8]\na running flow keeps its weights"));
  CHECK_THAT(refused("conv(2, kernel=3), avgpool(4)", "conv(2, kernel=5), avgpool(4)"),
             Catch::StartsWith("the change needs other weights: 'x.h.conv.weight' would be f32[2, 1, 5, 5] instead of "
                               "f32[2, 1, 3, 3]"));
  CHECK_THAT(refused("conv(2), avgpool(4)", "conv(2), avgpool(2)"),
             Catch::StartsWith("the change needs other weights: 'h.o.affine.weight' would be"));
  CHECK_THAT(refused("conv(2), avgpool(4)", "conv(2, bias=false), avgpool(4)"),
             Catch::StartsWith("the change needs other weights: 'x.h.conv.bias' would not be used"));
  CHECK_THAT(refused("conv(2, bias=false), avgpool(4)", "conv(2), avgpool(4)"),
             Catch::StartsWith("the change needs other weights: 'x.h.conv.bias' would be new"));
  CHECK_THAT(refused("conv(2), avgpool(4)", "conv(2, kernel=16, padding=\"valid\"), avgpool(4)"),
             !Catch::StartsWith("no error"));
}

TEST_CASE("changed layers: weights of branches that are not taken count too") {
  const auto flow = [](const std::string& width) {
    return changed_flow("affine(4)",
                        "if loss < -1 { x -(flatten, affine(" + width + "), tanh, affine(2))-> o; } o <-(mse)- y;");
  };
  CHECK(changed_once(flow("6"), flow("6")).message == "no error");
  CHECK_THAT(changed_once(flow("6"), flow("7")).message, Catch::StartsWith("the change needs other weights"));
}

TEST_CASE("changed layers: a checkpoint keeps the changes in order") {
  RunState state;
  state.changes.of = "0123456789abcdef";
  state.changes.all = {{"h", {{"rate", "0.25", "0.5", "0.5"}, {"kernel", "3", "[3, 3]"}}},
                       {"o", {{"leaky_relu.slope", "0.1", "", "0.01"}}}};
  TensorFile file;
  write_state(state, file);
  const LayerChanges read = changes_in(file.metadata);
  CHECK(read.of == state.changes.of);
  REQUIRE(read.all.size() == 2);
  CHECK(read.all[0].layer == "h");
  REQUIRE(read.all[0].arguments.size() == 2);
  CHECK(read.all[0].arguments[0].name == "rate");
  CHECK(read.all[0].arguments[0].after == "0.5");
  CHECK(read.all[0].arguments[1].after == "[3, 3]");
  CHECK(read.all[1].arguments.at(0).after == "");
  CHECK(take_state(file, "test").changes.all.size() == 2);
  write_state(RunState(), file);
  CHECK(changes_in(file.metadata).all.empty());
  CHECK(changes_in({}).all.empty());
  CHECK(changes_in({{"harmonics.run", "[}"}}).all.empty());
  CHECK(state.changes.all[1].text() == "'o' has leaky_relu.slope = 0.01 (was 0.1)");
}
