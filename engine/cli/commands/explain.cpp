// harmonics explain: shows each stage of the compilation of a flow.
#include <algorithm>
#include <exception>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "dsl/hmx/print.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/commands/dot.hpp"
#include "engine/cli/commands/explain_model.hpp"
#include "engine/cli/commands/explanation.hpp"
#include "engine/cli/commands/graph_summary.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/run/outputs.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/execution/product_rates.hpp"
#include "engine/program/print.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

void show_widths(BoundGraph& graph, Explanation& e) {
  json::array rows;
  e.say("widths\n");
  for (int n : graph.graph().order()) {
    const auto it = graph.widths().of.find(n);
    if (it == graph.widths().of.end()) continue;
    const Width& w = it->second;
    const std::string& name = graph.graph().nodes[static_cast<size_t>(n)].name;
    e.say(fmt::format("  {:<20} {:<16} {}{}\n", name, w.shape.str(), w.reason,
                      w.positions ? " (first axis: positions)" : ""));
    rows.push_back(json::object{{"name", name},
                                {"shape", json::value_from(w.shape.vector())},
                                {"positions", w.positions},
                                {"reason", w.reason}});
  }
  for (const std::string& note : graph.widths().notes) e.say(fmt::format("  note: {}\n", note));
  e.object()["widths"] = std::move(rows);
  e.object()["notes"] = json::value_from(graph.widths().notes);
}

void show_training(BoundGraph& graph, int cycle, const Options& options, Explanation& e) {
  if (!graph.graph().trains(cycle) || options.inference) return;
  const ResolvedSettings s = graph.settings(cycle, options.run);
  e.say(fmt::format("training\n  optimizer            {}\n  schedule             {}\n", s.optimizer.str(),
                    s.schedule.str()));
  if (s.clip > 0) e.say(fmt::format("  clip                 gradients by global norm to {:g}\n", s.clip));
  if (s.clip_value > 0) e.say(fmt::format("  clip_value           gradients by value to {:g}\n", s.clip_value));
  e.say(fmt::format("  batch                {}{}\n", s.batch,
                    s.accumulate > 1 ? fmt::format(", {} per step", s.accumulate) : ""));
  if (!e.object().contains("training")) e.object()["training"] = json::array();
  e.object()["training"].as_array().push_back(json::object{{"cycle", cycle + 1},
                                                           {"optimizer", s.optimizer.str()},
                                                           {"schedule", s.schedule.str()},
                                                           {"clip", s.clip},
                                                           {"clip_value", s.clip_value},
                                                           {"batch", s.batch},
                                                           {"accumulate", s.accumulate}});
}

void compile_and_show(BoundGraph& graph, int cycle, const Options& options, Explanation& e) {
  const ResolvedSettings settings = graph.settings(cycle, options.run);
  LoweringOptions o;
  o.mode = graph.graph().trains(cycle) && !options.inference ? Mode::train : Mode::infer;
  o.cycle = cycle;
  o.batch = settings.batch;
  o.seed = settings.seed;
  o.device = options.run;
  static_cast<UpdateSettings&>(o) = settings;
  const bool gathers = o.mode == Mode::train && settings.accumulate > 1;
  if (gathers) o.accumulate = 1;
  if (o.mode == Mode::infer) o.wanted = graph.results(cycle);
  o.branches = graph.graph().branches(cycle);
  if (options.memory) graph.store().reserve_only();
  if (options.memory && o.mode == Mode::infer) e.say("nothing is kept: the cycle has no tap to learn from\n\n");
  const Lowered lowered = graph.lower(o);
  ShownProgram shown{graph.store(), graph.executor(0), graph.compile_options(options.run, o.mode == Mode::train),
                     gathers ? " of each batch" : ""};
  show_program(lowered.program, lowered.opened, shown, options, e);
  shown.of = " of the step";
  if (gathers)
    show_program(accumulated_update(graph.graph().name, graph.store(), settings, lowered.trained, lowered.parts.size()),
                 {}, shown, options, e);
}

void require_types(BoundGraph& graph, const Options& options) {
  for (int cycle = 0; cycle < static_cast<int>(graph.graph().cycles.size()); ++cycle)
    for (int n : graph.graph().producers_used(cycle, !options.inference))
      if (!graph.types().count(n)) {
        const std::string& name = graph.graph().nodes[static_cast<size_t>(n)].name;
        throw Error(
            ErrorKind::Usage, fmt::format("the sample type of producer '{}' is unknown", name), {},
            {fmt::format(
                "bind it (--producer {}=ADDRESS), give --weights, or declare its shape; --show flow needs neither",
                name)});
      }
}

std::unique_ptr<BoundGraph> open_to_explain(const Flow& flow, const Options& options) {
  std::unique_ptr<BoundGraph> graph = open_graph(flow, options, options.inference);
  graph->assume_declared_streams();
  require_types(*graph, options);
  return graph;
}

void show_summary(BoundGraph& graph, const Options& options, Explanation& e) {
  const GraphSummary summary = summary_of(graph, options);
  e.say(summary_text(summary) + "\n");
  e.object()["summary"] = summary_json(summary);
}

void explain(const Flow& flow, const Options& options, Explanation& e) {
  if (options.dot) {
    std::unique_ptr<BoundGraph> graph = open_graph(flow, options, options.inference);
    graph->assume_declared_streams();
    const std::string dot = dot_of(*graph);
    e.say(dot);
    e.object()["dot"] = dot;
    return;
  }
  if (!options.html.empty()) return explain_flow_html(*open_to_explain(flow, options), options);
  const bool programs = wants_programs(options);
  const bool entries = wants(options, "entries");
  const bool opens = wants(options, "widths") || wants(options, "summary") || entries || programs;
  std::unique_ptr<BoundGraph> graph;
  std::exception_ptr failed;  // thrown after the flow is shown
  try {
    if (opens) graph = open_to_explain(flow, options);
    if (opens && wants(options, "summary")) show_summary(*graph, options, e);
  } catch (const Error&) {
    failed = std::current_exception();
  }
  if (wants(options, "flow")) {
    e.say(to_text(flow) + "\n");
    e.object()["flow"] = to_text(flow);
  }
  if (failed) std::rethrow_exception(failed);
  if (!opens) return;
  if (const std::string text = precision_text(options.run); !text.empty()) {
    e.say(text + "\n\n");
    e.object()["precision"] =
        json::object{{"name", precision_name(options.run.precision)}, {"why", options.run.precision_reason}};
  }
  e.object()["graph"] = graph->graph().name;
  if (wants(options, "widths")) show_widths(*graph, e);
  for (int cycle = 0; cycle < static_cast<int>(graph->graph().cycles.size()); ++cycle) {
    if (graph->graph().cycles.size() > 1) e.say(fmt::format("cycle {}\n", cycle + 1));
    if (wants(options, "widths")) show_training(*graph, cycle, options, e);
    if (entries) show_entries(graph->model(cycle), {graph->settings(cycle, options.run).batch}, options, e);
    if (programs) compile_and_show(*graph, cycle, options, e);
  }
  if (wants(options, "memory")) show_parameters(graph->store(), e);
}

// Throws for flags that the form of output does not support.
void expect_one_form(const Options& options) {
  if (options.html.empty()) refuse_without(options, {"numbers"}, "--html FILE.html");
  if (options.memory) refuse_beside(options, {"dot", "infer"}, "--memory");
  if (!options.html.empty())
    refuse_beside(options, {"show", "entry", "after", "select", "placement", "dot", "memory"}, "--html");
  expect_ending("--html", options.html, {".html", ".htm"}, "a page");
}

}  // namespace

int explain_command(const Options& options) {
  expect_one_form(options);
  if (explain_model_html(options) || explain_model_memory(options)) return kDone;
  if (explain_entries(options)) return kDone;
  if (explain_ndsl(options)) return kDone;
  if (explain_model(options)) return kDone;
  if (!wants(options, "entries")) refuse_without(options, {"entry"}, "--show entries");
  refuse_flags(options, {"tokens"}, "a flow");
  const Flow flow = read_flow(options);
  return with_source(flow.source, [&] {
    Explanation e(options);
    e.object()["version"] = 1;
    explain(flow, options, e);
    if (options.json && options.html.empty()) print_json(e.object());
    return kDone;
  });
}

}  // namespace harmonics::engine::cli
