#include "engine/cli/commands/graph_summary.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/execution/work.hpp"
#include "engine/flow/run_edge.hpp"

namespace harmonics::engine::cli {

namespace {

bool is_within(const std::string& name, const std::string& path) {
  return name.starts_with(path) && (name.size() == path.size() || name[path.size()] == '.' || name[path.size()] == '/');
}

class Summing {
 public:
  Summing(BoundGraph& graph, const Options& options) : graph_(graph), options_(options) {}

  GraphSummary run() {
    for (int cycle = 0; cycle < static_cast<int>(graph_.graph().cycles.size()); ++cycle) add_cycle(cycle);
    for (int n : graph_.graph().order())
      if (graph_.graph().nodes[static_cast<size_t>(n)].kind == DeclarationKind::Layer) add_layer(n);
    for (const auto& [name, t] : graph_.store().all())
      if (used_.count(name)) (trained_.count(name) ? summary_.trained : summary_.frozen) += t.type.shape.count();
    return std::move(summary_);
  }

 private:
  void add_cycle(int cycle) {
    const ResolvedSettings settings = graph_.settings(cycle, options_.run);
    LoweringOptions o;
    o.mode = graph_.graph().trains(cycle) && !options_.inference ? Mode::train : Mode::infer;
    o.cycle = cycle;
    o.batch = settings.batch;
    o.seed = settings.seed;
    o.device = options_.run;
    static_cast<UpdateSettings&>(o) = settings;
    if (o.mode == Mode::infer) o.wanted = graph_.results(cycle);
    o.branches = graph_.graph().branches(cycle);
    const Lowered lowered = graph_.lower(o);
    SummaryStep step{cycle + 1, settings.batch, o.mode == Mode::train};
    for (const Node& node : lowered.program.nodes) {
      const double flops = work_of(lowered.program, node).flops();
      if (const NodeScope& scope = lowered.program.scope_of(node); scope.phase == Phase::forward)
        add_to_arrow(scope.path, flops / static_cast<double>(settings.batch), cycle);
    }
    for (const Node* leaf : lowered.program.leaves(Op::parameter)) used_.insert(leaf->callee);
    for (const TrainedParameter& parameter : lowered.trained) trained_.insert(parameter.name);
    const auto executable = compile(lowered.program, &graph_.store(), graph_.executor(options_.run.threads),
                                    graph_.compile_options(options_.run, step.trains));
    for (const Node& node : executable->program().nodes) step.flops += work_of(executable->program(), node).flops();
    step.buffers = executable->memory().arena_bytes;
    step.state = executable->memory().state_bytes;
    summary_.steps.push_back(step);
  }

  // Adds the FLOPs of a part. Parts shared by several cycles count only in the first of them.
  void add_to_arrow(const std::string& path, double flops, int cycle) {
    const auto first = cycle_of_.try_emplace(path, cycle).first->second;
    if (first == cycle) flops_[path] += flops;
  }

  void add_layer(int n) {
    SummaryRow row;
    row.layer = graph_.graph().nodes[static_cast<size_t>(n)].name;
    if (const auto it = graph_.widths().of.find(n); it != graph_.widths().of.end())
      row.shape = it->second.shape.vector();
    std::set<std::string> functions;
    for (const GraphEdge& e : graph_.graph().edges) {
      if (e.target != n) continue;
      std::string names;
      for (size_t i = 0; i < e.calls.size(); ++i) {
        names += (names.empty() ? "" : ", ") + e.calls[i].item->name;
        row.parameters += take_parameters(parameter_prefix(e, i));
      }
      if (!names.empty() && functions.insert(names).second)
        row.functions += (row.functions.empty() ? "" : " + ") + names;
      for (auto& [path, flops] : flops_)
        if (is_within(path, e.path)) row.flops += std::exchange(flops, 0);
    }
    summary_.flops += row.flops;
    summary_.rows.push_back(std::move(row));
  }

  int64_t take_parameters(const std::string& prefix) {
    int64_t count = 0;
    for (const std::string& name : used_)
      if (is_within(name, prefix) && counted_.insert(name).second)
        count += graph_.store().find(name)->type.shape.count();
    return count;
  }

  BoundGraph& graph_;
  const Options& options_;
  GraphSummary summary_;
  std::set<std::string> used_, trained_, counted_;
  std::map<std::string, double> flops_;  // by path of an arrow
  std::map<std::string, int> cycle_of_;
};

std::string flops_text(double flops) {
  if (flops >= 1e9) return fmt::format("{:.2f} G", flops / 1e9);
  if (flops >= 1e6) return fmt::format("{:.2f} M", flops / 1e6);
  return thousands(static_cast<int64_t>(flops));
}

}  // namespace

GraphSummary summary_of(BoundGraph& graph, const Options& options) { return Summing(graph, options).run(); }

std::string bytes_text(uint64_t n) {
  if (n < 1024) return fmt::format("{} B", n);
  if (n < 1024 * 1024) return fmt::format("{:.1f} KiB", static_cast<double>(n) / 1024);
  return fmt::format("{:.1f} MiB", static_cast<double>(n) / (1024 * 1024));
}

std::string summary_text(const GraphSummary& summary) {
  std::string s = "summary\n" + fmt::format("  {:<20} {:<28} {:<16} {:>12} {:>14}\n", "layer", "functions", "shape",
                                            "parameters", "FLOPs");
  int64_t parameters = 0;
  for (const SummaryRow& row : summary.rows) {
    parameters += row.parameters;
    s += fmt::format("  {:<20} {:<28} {:<16} {:>12} {:>14}\n", row.layer, row.functions, Shape(row.shape).str(),
                     thousands(row.parameters), flops_text(row.flops));
  }
  s += fmt::format("  {:<20} {:<28} {:<16} {:>12} {:>14}\n", "total", "", "", thousands(parameters),
                   flops_text(summary.flops));
  s += fmt::format("  parameters: {} trained, {} frozen; FLOPs: forward pass of one sample\n",
                   thousands(summary.trained), thousands(summary.frozen));
  for (const SummaryStep& step : summary.steps)
    s += fmt::format(
        "  a step of {} on {}{}: {} FLOPs, memory {}: {} of weights, moments and statistics, {} of buffers\n",
        step.trains ? "training" : "inference", number_of(static_cast<uint64_t>(step.batch), "sample"),
        summary.steps.size() > 1 ? fmt::format(" in cycle {}", step.cycle) : "", flops_text(step.flops),
        bytes_text(step.state + step.buffers), bytes_text(step.state), bytes_text(step.buffers));
  return s;
}

boost::json::object summary_json(const GraphSummary& summary) {
  boost::json::array layers, steps;
  int64_t parameters = 0;
  for (const SummaryRow& row : summary.rows) {
    parameters += row.parameters;
    layers.push_back(boost::json::object{{"name", row.layer},
                                         {"functions", row.functions},
                                         {"shape", boost::json::value_from(row.shape)},
                                         {"parameters", row.parameters},
                                         {"flops", row.flops}});
  }
  for (const SummaryStep& step : summary.steps)
    steps.push_back(boost::json::object{{"cycle", step.cycle},
                                        {"batch", step.batch},
                                        {"trains", step.trains},
                                        {"flops", step.flops},
                                        {"state_bytes", step.state},
                                        {"buffer_bytes", step.buffers}});
  return {{"layers", std::move(layers)}, {"parameters", parameters}, {"trained", summary.trained},
          {"frozen", summary.frozen},    {"flops", summary.flops},   {"steps", std::move(steps)}};
}

}  // namespace harmonics::engine::cli
