// A flow as a model: its entries, and the rewrites that make a training step from them.
#include <catch2/catch.hpp>

#include "engine/passes/observe.hpp"
#include "engine/program/print.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr const char* kEntriesFlow = R"(harmonic g {
  producer x {6}; producer y {3}; layer h {4}; layer o;
  cycle { x -(affine, norm("batch"), relu, dropout(0.5))-> h -> o; o <-(cross_entropy)- y; }
})";

std::unique_ptr<BoundGraph> flow_with_rows(const char* text = kEntriesFlow) {
  auto g = graph_of(text);
  bind_rows(*g, "x", {6}, numbers(6 * 12));
  std::vector<int64_t> y;
  for (int64_t i = 0; i < 12; ++i) y.push_back(i % 3);
  bind_rows<int64_t>(*g, "y", {}, y);
  return g;
}

std::string entry_text(Program program, const std::string& name) {
  program.name = name;
  return print(program);
}

bool is_entry_result(const std::string& output) { return !output.starts_with("value:"); }

}  // namespace

TEST_CASE("flow model: entries are what the flow is lowered to") {
  const auto g = flow_with_rows();
  const Model model = g->model(0);
  LoweringOptions o;
  o.batch = 4;
  o.mode = Mode::infer;
  o.wanted = g->results(0);
  CHECK(entry_text(observe(model.trace(model.entry("forward"), {4}), is_entry_result), "g") ==
        entry_text(g->lower(o).program, "g"));
  o.mode = Mode::evaluate;
  CHECK(entry_text(observe(model.trace(model.entry("loss"), {4}), is_entry_result), "g") ==
        entry_text(g->lower(o).program, "g"));
  o.observe = true;
  CHECK(entry_text(model.trace(model.entry("loss"), {4}), "g") == entry_text(g->lower(o).program, "g"));
  CHECK(model.trace(model.entry("loss"), {4}).output("value:h"));
}

TEST_CASE("flow model: its loss differentiated and updated is the flow's training step") {
  for (const char* optimizer : {"sgd", "adamw", "normuon"}) {
    const auto g = flow_with_rows();
    LoweringOptions o;
    o.batch = 4;
    o.optimizer = parse_optimizer(optimizer);
    o.clip = 1;
    const Lowered lowered = g->lower(o);
    const Model model = g->model(0);
    const Program entry = observe(model.trace(model.entry("loss"), {4, 1, 1, true}), [](const std::string& name) {
      return name == "loss" || name == "o.loss" || name == "o.correct";
    });
    const Program step =
        update(differentiate(entry, "loss", differentiable_parameters(entry)), g->store(), o, lowered.trained);
    CHECK(entry_text(step, "g") == entry_text(lowered.program, "g"));
    CHECK(lowered.trained.size() == 6);
  }
}

TEST_CASE("flow model: without taps there is no loss, and a wrong entry is refused") {
  const auto g = flow_with_rows("harmonic g { producer x {6}; producer y {3}; layer o {3}; cycle { x -> o; } }");
  const Model model = g->model(0);
  CHECK(model.entries.size() == 1);
  CHECK(model.parameters.get() == &g->store());
  CHECK_THAT(message_of([&] { model.entry("los"); }), Catch::StartsWith("the model 'g' has no entry 'los'"));
}

TEST_CASE("flow model: a program that learns in parts accumulates each part's gradients") {
  const auto g = flow_with_rows();
  LoweringOptions o;
  o.batch = 4;
  o.optimizer = parse_optimizer("sgd");
  o.accumulate = 0.5;
  const Lowered lowered = g->lower(o);
  CHECK(lowered.program.outputs.size() == 3);
  size_t accumulated = 0;
  for (const NamedValue& update : lowered.program.updates) accumulated += is_accumulator(update.name) ? 1 : 0;
  CHECK(accumulated == lowered.trained.size());
}
