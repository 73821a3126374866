// harmonics explain: shows each stage of the compilation of a flow.
#include <algorithm>
#include <exception>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "dsl/hmx/print.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/commands/dot.hpp"
#include "engine/cli/commands/explain_model.hpp"
#include "engine/cli/commands/graph_summary.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/program/print.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

bool wants(const Options& o, const char* what) {
  if (o.show.empty() && o.after.empty() && !o.select && !o.placement)
    return std::string(what) == "summary" || std::string(what) == "flow" || std::string(what) == "widths";
  return std::find(o.show.begin(), o.show.end(), what) != o.show.end();
}

// The requested sections, as readable text or as members of one JSON object.
class Explanation {
 public:
  explicit Explanation(const Options& options) : json_(options.json) {}

  void section(const char* key, const std::string& title, const std::string& text) {
    if (json_)
      add(key, {{"title", title}, {"text", text}});
    else
      print("{}\n{}\n", title, text);
  }
  void say(const std::string& text) const {
    if (!json_) print("{}", text);
  }
  json::object& object() { return object_; }

 private:
  void add(const char* key, json::object entry) {
    if (!object_.contains(key)) object_[key] = json::array();
    object_[key].as_array().push_back(std::move(entry));
  }
  bool json_;
  json::object object_;
};

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

void show_parameters(const ParameterStore& store, Explanation& e) {
  json::array rows;
  int64_t total = 0;
  e.say("weights\n");
  for (const auto& [name, t] : store.all()) {
    if (t.role == Role::moment) continue;
    total += t.type.shape.count();
    e.say(fmt::format("  {:<40} {}\n", name, t.type.str()));
    rows.push_back(json::object{{"name", name},
                                {"dtype", std::string(dtype_name(t.type.dtype))},
                                {"shape", json::value_from(t.type.shape.vector())}});
  }
  e.say(fmt::format("  {} numbers in all\n", thousands(total)));
  e.object()["weights"] = std::move(rows);
}

void show_memory(const MemoryReport& m, Explanation& e) {
  e.say(fmt::format(
      "memory\n  arena       {:>12}  what one step needs, buffers shared\n  unshared    {:>12}  the same without "
      "sharing\n  state       {:>12}  weights, moments, statistics\n  workspace   {:>12}  inside the arena\n",
      bytes_text(m.arena_bytes), bytes_text(m.unshared_bytes), bytes_text(m.state_bytes),
      bytes_text(m.workspace_bytes)));
  e.object()["memory"] = json::object{{"arena_bytes", m.arena_bytes},
                                      {"unshared_bytes", m.unshared_bytes},
                                      {"state_bytes", m.state_bytes},
                                      {"workspace_bytes", m.workspace_bytes}};
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

// Shows the selected implementation of each call, then the rejected ones with the reason.
void show_selected(const Executable& executable, const std::vector<Selected>& opened, const std::string& of,
                   Explanation& e) {
  json::array rows;
  e.say("implementations" + of + "\n");
  std::vector<Selected> all = executable.selected();
  all.insert(all.end(), opened.begin(), opened.end());
  for (const Selected& s : all) {
    e.say(fmt::format("  {}\n    {}\n    {} ({})\n", s.scope.empty() ? "(no scope)" : s.scope, s.site, s.winner,
                      s.because));
    json::array declined;
    for (const auto& [name, why] : s.declined) {
      e.say(fmt::format("      not {}: {}\n", name, why));
      declined.push_back(json::object{{"name", name}, {"why", why}});
    }
    rows.push_back(json::object{{"functional", s.op},
                                {"site", s.site},
                                {"scope", s.scope},
                                {"winner", s.winner},
                                {"because", s.because},
                                {"declined", declined}});
  }
  if (!e.object().contains("implementations")) e.object()["implementations"] = json::array();
  for (json::value& row : rows) e.object()["implementations"].as_array().push_back(std::move(row));
}

// Shows the device of each part, and every step that runs on the host.
void show_placement(const Executable& executable, const std::string& device, const std::string& of, Explanation& e) {
  json::array hosted;
  std::string text;
  for (size_t i = 0; i < executable.steps().size(); ++i) {
    const PlanStep& s = executable.steps()[i];
    if (!s.on_host) continue;
    text += fmt::format("  step {}: {} by '{}'{}\n", i, s.what, s.kernel, s.scope.empty() ? "" : ", in " + s.scope);
    hosted.push_back(
        json::object{{"step", i}, {"what", s.what}, {"kernel", s.kernel}, {"scope", s.scope}, {"origin", s.origin}});
  }
  const size_t n = executable.steps().size() - hosted.size();
  e.say(fmt::format(
      "placement{}\n  {} steps on {}{}\n{}", of, n, device,
      hosted.empty() ? ", none on the host" : fmt::format(", {} on the host, with copies:", hosted.size()), text));
  if (!e.object().contains("placement")) e.object()["placement"] = json::array();
  e.object()["placement"].as_array().push_back(json::object{{"device", device}, {"steps", n}, {"hosted", hosted}});
}

// Shows one program as traced, after its passes and as a plan, as far as requested.
void show_program(BoundGraph& graph, const Program& traced, const std::vector<Selected>& opened, bool trains,
                  const Options& options, const std::string& of, Explanation& e) {
  std::vector<std::string> passes{"trace"};
  if (options.after == "trace" || options.after == "all")
    e.section("programs", "program" + of + " after trace", print(traced));
  CompileOptions c = graph.compile_options(options.run, trains);
  c.observe = [&](const std::string& pass, const Program& program) {
    passes.push_back(pass);
    if (options.after == pass || options.after == "all")
      e.section("programs", fmt::format("program{} after {}", of, pass), print(program));
  };
  const auto executable = compile(traced, &graph.store(), graph.executor(0), c);
  if (!options.after.empty() && options.after != "all" &&
      std::find(passes.begin(), passes.end(), options.after) == passes.end()) {
    std::string known;
    for (const std::string& p : passes) known += (known.empty() ? "" : ", ") + p;
    throw Error(ErrorKind::Usage, fmt::format("there is no pass '{}'", options.after), {},
                {"passes are " + known + ", or 'all'"});
  }
  if (wants(options, "program")) e.section("programs", "program" + of, print(executable->program()));
  if (wants(options, "kernels")) e.section("kernels", "kernels" + of, print_plan(*executable));
  if (wants(options, "memory")) show_memory(executable->memory(), e);
  if (options.select) show_selected(*executable, opened, of, e);
  if (options.placement) show_placement(*executable, options.run.device, of, e);
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
  const Lowered lowered = graph.lower(o);
  const bool trains = o.mode == Mode::train;
  show_program(graph, lowered.program, lowered.opened, trains, options, gathers ? " of each batch" : "", e);
  if (gathers)
    show_program(graph,
                 accumulated_update(graph.graph().name, graph.store(), settings, lowered.trained, lowered.parts.size()),
                 {}, trains, options, " of the step", e);
}

void require_types(BoundGraph& graph, const Options& options) {
  for (int cycle = 0; cycle < static_cast<int>(graph.graph().cycles.size()); ++cycle)
    for (int n : graph.graph().producers_used(cycle, !options.inference))
      if (!graph.types().count(n)) {
        const std::string& name = graph.graph().nodes[static_cast<size_t>(n)].name;
        throw Error(
            ErrorKind::Usage, fmt::format("what producer '{}' delivers is not known", name), {},
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
  const bool programs = wants(options, "program") || wants(options, "kernels") || wants(options, "memory") ||
                        options.select || options.placement || !options.after.empty();
  const bool opens = wants(options, "widths") || wants(options, "summary") || programs;
  std::unique_ptr<BoundGraph> graph;
  std::exception_ptr failed;  // the flow is shown all the same
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
  e.object()["graph"] = graph->graph().name;
  if (wants(options, "widths")) show_widths(*graph, e);
  for (int cycle = 0; cycle < static_cast<int>(graph->graph().cycles.size()); ++cycle) {
    if (graph->graph().cycles.size() > 1) e.say(fmt::format("cycle {}\n", cycle + 1));
    if (wants(options, "widths")) show_training(*graph, cycle, options, e);
    if (programs) compile_and_show(*graph, cycle, options, e);
  }
  if (wants(options, "memory")) show_parameters(graph->store(), e);
}

}  // namespace

int explain_command(const Options& options) {
  if (explain_model(options)) return kDone;
  const Flow flow = read_flow(options);
  return with_source(flow.source, [&] {
    Explanation e(options);
    e.object()["version"] = 1;
    explain(flow, options, e);
    if (options.json) print_json(e.object());
    return kDone;
  });
}

}  // namespace harmonics::engine::cli
