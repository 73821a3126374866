// harmonics explain: what a flow becomes, stage by stage.
#include <algorithm>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "dsl/hmx/print.hpp"
#include "engine/cli/command.hpp"
#include "engine/cli/dot.hpp"
#include "engine/cli/open_graph.hpp"
#include "engine/cli/terminal.hpp"
#include "engine/program/print.hpp"

namespace harmonics::cli {

namespace {

bool wants(const Options& o, const char* what) {
  if (o.show.empty() && o.after.empty()) return std::string(what) == "flow" || std::string(what) == "widths";
  return std::find(o.show.begin(), o.show.end(), what) != o.show.end();
}

std::string bytes_text(uint64_t n) {
  if (n < 1024) return fmt::format("{} B", n);
  if (n < 1024 * 1024) return fmt::format("{:.1f} KiB", static_cast<double>(n) / 1024);
  return fmt::format("{:.1f} MiB", static_cast<double>(n) / (1024 * 1024));
}

void print_widths(HarmonicGraph& graph) {
  fmt::print("widths\n");
  for (int n : graph.graph().order()) {
    const auto it = graph.widths().of.find(n);
    if (it == graph.widths().of.end()) continue;
    const Width& w = it->second;
    fmt::print("  {:<20} {:<16} {}{}\n", graph.graph().nodes[static_cast<size_t>(n)].name, w.shape.str(), w.reason, w.positions ? " (first axis: positions)" : "");
  }
  for (const std::string& note : graph.widths().notes) fmt::print("  note: {}\n", note);
}

void print_parameters(const HarmonicGraph& graph, const ParameterStore& store) {
  (void)graph;
  fmt::print("weights\n");
  int64_t total = 0;
  for (const auto& [name, t] : store.all()) {
    if (t.role == Role::moment) continue;
    total += t.type.shape.count();
    fmt::print("  {:<40} {}\n", name, t.type.str());
  }
  fmt::print("  {} numbers in all\n", thousands(total));
}

void print_memory(const MemoryReport& m) {
  fmt::print("memory\n  arena       {:>12}  what one step needs, buffers shared\n  unshared    {:>12}  the same without sharing\n  state       {:>12}  weights, moments, statistics\n  workspace   {:>12}  inside the arena\n",
             bytes_text(m.arena_bytes), bytes_text(m.unshared_bytes), bytes_text(m.state_bytes), bytes_text(m.workspace_bytes));
}

void print_training(HarmonicGraph& graph, int cycle, const Options& options) {
  if (!graph.graph().trains(cycle) || options.inference) return;
  const ResolvedSettings s = graph.settings(cycle, options.run);
  fmt::print("training\n  optimizer            {}\n  schedule             {}\n", s.optimizer.str(), s.schedule.str());
  if (s.clip > 0) fmt::print("  clip                 all gradients together to a length of {:g}\n", s.clip);
  if (s.clip_value > 0) fmt::print("  clip_value           numbers of gradients to {:g}\n", s.clip_value);
  fmt::print("  batch                {}{}\n", s.batch, s.accumulate > 1 ? fmt::format(", {} of them a step", s.accumulate) : "");
}

// One program as it was traced, after its passes and as a plan, whatever of that was asked for.
void show_program(HarmonicGraph& graph, const Program& traced, const Options& options, const std::string& of) {
  std::vector<std::string> passes{"trace"};
  if (options.after == "trace" || options.after == "all") fmt::print("program{} after trace\n{}\n", of, print(traced));
  CompileOptions c = graph.compile_options(options.run);
  c.observe = [&](const std::string& pass, const Program& program) {
    passes.push_back(pass);
    if (options.after == pass || options.after == "all") fmt::print("program{} after {}\n{}\n", of, pass, print(program));
  };
  const auto executable = compile(traced, &graph.store(), graph.executor(0), c);
  if (!options.after.empty() && options.after != "all" && std::find(passes.begin(), passes.end(), options.after) == passes.end()) {
    std::string known;
    for (const std::string& p : passes) known += (known.empty() ? "" : ", ") + p;
    throw Error(ErrorKind::Usage, fmt::format("there is no pass '{}'", options.after), {}, {"passes are " + known + ", or 'all'"});
  }
  if (wants(options, "program")) fmt::print("program{}\n{}\n", of, print(executable->program()));
  if (wants(options, "kernels")) fmt::print("kernels{}\n{}\n", of, print_plan(*executable));
  if (wants(options, "memory")) print_memory(executable->memory());
}

void compile_and_show(HarmonicGraph& graph, int cycle, const Options& options) {
  const ResolvedSettings settings = graph.settings(cycle, options.run);
  LoweringOptions o;
  o.mode = graph.graph().trains(cycle) && !options.inference ? Mode::train : Mode::infer;
  o.cycle = cycle;
  o.batch = settings.batch;
  o.seed = settings.seed;
  static_cast<UpdateSettings&>(o) = settings;
  const bool gathers = o.mode == Mode::train && settings.accumulate > 1;
  if (gathers) o.accumulate = 1;
  if (o.mode == Mode::infer) o.wanted = graph.results(cycle);
  for (size_t i = 0; i < graph.graph().conditionals.size(); ++i)
    if (graph.graph().conditionals[i].cycle == cycle) o.branches.insert(static_cast<int>(2 * i));
  const Lowered lowered = graph.lower(o);
  show_program(graph, lowered.program, options, gathers ? " of each batch" : "");
  if (gathers) show_program(graph, accumulated_update(graph.graph().name, graph.store(), settings, lowered.trained), options, " of the step");
}

}  // namespace

int explain_command(const Options& options) {
  const Flow flow = read_flow(options);
  return with_source(flow.source, [&] {
    if (options.dot) {
      std::unique_ptr<HarmonicGraph> graph = open_graph(flow, options, options.inference);
      graph->assume_declared_streams();
      fmt::print("{}", dot_of(*graph));
      return kDone;
    }
    if (wants(options, "flow")) fmt::print("{}\n", to_text(flow));
    const bool needs_widths = wants(options, "widths") || wants(options, "program") || wants(options, "kernels") || wants(options, "memory") || !options.after.empty();
    if (!needs_widths) return kDone;
    std::unique_ptr<HarmonicGraph> graph = open_graph(flow, options, options.inference);
    graph->assume_declared_streams();
    for (int cycle = 0; cycle < static_cast<int>(graph->graph().cycles.size()); ++cycle)
      for (int n : graph->graph().producers_used(cycle, !options.inference))
        if (!graph->types().count(n)) {
          const std::string& name = graph->graph().nodes[static_cast<size_t>(n)].name;
          throw Error(ErrorKind::Usage, fmt::format("what producer '{}' delivers is not known", name), {}, {fmt::format("bind it (--producer {}=ADDRESS), give --weights, or declare its shape; --show flow needs neither", name)});
        }
    if (wants(options, "widths")) print_widths(*graph);
    for (int cycle = 0; cycle < static_cast<int>(graph->graph().cycles.size()); ++cycle) {
      if (graph->graph().cycles.size() > 1) fmt::print("cycle {}\n", cycle + 1);
      if (wants(options, "widths")) print_training(*graph, cycle, options);
      if (wants(options, "program") || wants(options, "kernels") || wants(options, "memory") || !options.after.empty()) compile_and_show(*graph, cycle, options);
    }
    if (wants(options, "memory")) print_parameters(*graph, graph->store());
    return kDone;
  });
}

}  // namespace harmonics::cli
