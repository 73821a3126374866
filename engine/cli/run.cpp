// harmonics run: train (or infer, when the graph has no tap), test, save.
#include <csignal>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/cli/command.hpp"
#include "engine/cli/open_graph.hpp"
#include "engine/cli/report.hpp"
#include "engine/cli/terminal.hpp"
#include "engine/runtime/cycle_runtime.hpp"

namespace harmonics::cli {

namespace {

CycleRuntime* running = nullptr;

// First Ctrl-C finishes the step; a second one leaves at once.
void on_interrupt(int) {
  if (running) running->stop();
  std::signal(SIGINT, SIG_DFL);
}

// While this lives, Ctrl-C stops `runtime` after its step.
class Interruptible {
 public:
  explicit Interruptible(CycleRuntime& runtime) {
    running = &runtime;
    std::signal(SIGINT, on_interrupt);
    std::signal(SIGTERM, on_interrupt);
  }
  ~Interruptible() {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    running = nullptr;
  }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
};

int64_t weight_count(const ParameterStore& store) {
  int64_t n = 0;
  for (const auto& [name, t] : store.all())
    if (t.role == Role::weight || t.role == Role::frozen) n += t.type.shape.count();
  return n;
}

std::string loss_text(const CycleReport& report) {
  std::string s = fmt::format("loss {:.4g}", report.loss);
  if (report.accuracy >= 0) s += ", accuracy " + percent(report.accuracy);
  return s;
}

struct Outcome {
  CycleReport report;  // of the last cycle that trained, else of the last
  bool trained = false, interrupted = false;
  std::optional<Evaluation> test;
  std::string training;  // by what it was trained
};

boost::json::object json_of(const HarmonicGraph& graph, const Outcome& outcome) {
  const CycleReport& r = outcome.report;
  boost::json::object o;
  o["version"] = 1;
  o["graph"] = graph.graph().name;
  o["epochs"] = r.epochs;
  o["steps"] = r.steps;
  o["samples"] = r.samples;
  o["seconds"] = r.seconds;
  o["samples_per_second"] = r.samples_per_second;
  o["loss"] = r.loss;
  o["accuracy"] = r.accuracy >= 0 ? boost::json::value(r.accuracy) : boost::json::value(nullptr);
  o["test_loss"] = outcome.test ? boost::json::value(outcome.test->loss) : boost::json::value(nullptr);
  o["test_accuracy"] = outcome.test && outcome.test->accuracy >= 0 ? boost::json::value(outcome.test->accuracy) : boost::json::value(nullptr);
  o["stopped_by"] = r.stopped_by;
  o["training"] = outcome.trained ? boost::json::value(outcome.training) : boost::json::value(nullptr);
  o["learning_rate"] = outcome.trained ? boost::json::value(r.learning_rate) : boost::json::value(nullptr);
  boost::json::object metrics;
  for (const auto& [name, value] : r.metrics) metrics[name] = value;
  o["metrics"] = metrics;
  return o;
}

void require_bound(HarmonicGraph& graph) {
  for (size_t cycle = 0; cycle < graph.graph().cycles.size(); ++cycle)
    for (int n : graph.graph().producers_used(static_cast<int>(cycle), true))
      if (!graph.streams().bound(n)) {
        const std::string& name = graph.graph().nodes[static_cast<size_t>(n)].name;
        throw Error(ErrorKind::Usage, fmt::format("producer '{}' is not bound", name), {}, {fmt::format("bind it: --producer {}=file:PATH", name)});
      }
}

void announce(HarmonicGraph& graph, const Options& options) {
  if (options.quiet) return;
  std::string layers;
  for (int n : graph.graph().order()) {
    const auto it = graph.widths().of.find(n);
    if (it == graph.widths().of.end() || graph.graph().nodes[static_cast<size_t>(n)].kind != DeclarationKind::Layer) continue;
    layers += fmt::format("{}{} {}", layers.empty() ? "" : " · ", graph.graph().nodes[static_cast<size_t>(n)].name, it->second.shape.str());
  }
  say(fmt::format("{}: {}", graph.graph().name, layers));
  for (const std::string& note : graph.widths().notes) print_note(note);
  for (const auto& [n, type] : graph.types())
    if (type.dtype == DType::U8 && type.sample.rank() > 0 && graph.streams().bound(n))
      print_note(fmt::format("the bytes of '{}' are scaled to [0, 1]", graph.graph().nodes[static_cast<size_t>(n)].name));
}

// What an inference makes and nobody asked to have elsewhere goes to standard output.
void bind_results(HarmonicGraph& graph, int cycle) {
  for (int n : graph.results(cycle)) {
    const GraphNode& node = graph.graph().nodes[static_cast<size_t>(n)];
    const bool consumer = node.kind == DeclarationKind::Consumer;
    if (!graph.sinks().count(consumer ? n : -1)) graph.bind_consumer(consumer ? n : -1, open_sink(graph.registry(), node.name, parse_address("stdout:")));
  }
}

Outcome run_cycles(HarmonicGraph& graph, const Options& options) {
  Outcome outcome;
  const int cycles = static_cast<int>(graph.graph().cycles.size());
  for (int cycle = 0; cycle < cycles; ++cycle) {
    const bool trains = graph.graph().trains(cycle);
    if (!trains) bind_results(graph, cycle);
    CycleRuntime runtime(graph, cycle, options.run);
    ProgressLine line(options.quiet || !trains);
    runtime.on_progress([&](const Progress& p) { line.show(p); });
    runtime.on_epoch([&](const EpochReport& e) {
      if (options.quiet || !trains) return;
      line.clear();
      const std::string lr = graph.settings(cycle, options.run).schedule.is_constant() ? "" : fmt::format("  lr {:.3g}", e.learning_rate);
      say(fmt::format("epoch {:<3} loss {:<8.4g}{} {}  {}{}", e.epoch, e.loss, e.accuracy >= 0 ? " accuracy " + percent(e.accuracy) + " " : "", rate(static_cast<double>(e.samples) / e.seconds), duration(e.seconds), lr));
    });
    CycleReport report;
    {
      const Interruptible interruptible(runtime);
      report = runtime.run();
    }
    line.clear();
    for (const std::string& note : report.notes) print_note(note);
    for (const std::string& note : graph.weight_notes()) print_note(note);
    outcome.interrupted = report.stopped_by == "interrupt";
    if (trains || !outcome.trained) outcome.report = std::move(report);
    outcome.trained = outcome.trained || trains;
    if (trains) outcome.training = graph.settings(cycle, options.run).training();
    if (outcome.interrupted) break;
    if (trains && !graph.test_streams().empty()) outcome.test = evaluate(graph, cycle, graph.test_streams(), options.run);
  }
  for (auto& [n, sink] : graph.sinks()) sink->finish();
  return outcome;
}

void summarise(HarmonicGraph& graph, const Options& options, const Outcome& outcome) {
  if (options.quiet) return;
  const CycleReport& r = outcome.report;
  if (!outcome.trained) {
    if (options.weights.empty() && weight_count(graph.store()) > 0) print_note("no --weights were given: the results come from weights that never learned");
    say(fmt::format("inferred {} samples in {} ({})", thousands(r.samples), duration(r.seconds), rate(r.samples_per_second)));
    return;
  }
  say(fmt::format("trained {} weights on {} samples in {} ({}, stopped by {}): {}", thousands(weight_count(graph.store())), thousands(r.samples), duration(r.seconds), rate(r.samples_per_second), r.stopped_by, loss_text(r)));
  say("by " + outcome.training);
  if (outcome.test) {
    std::string line = fmt::format("test on {} samples: loss {:.4g}", thousands(outcome.test->samples), outcome.test->loss);
    if (outcome.test->accuracy >= 0) line += ", accuracy " + percent(outcome.test->accuracy);
    say(line);
  }
}

}  // namespace

int run_command(const Options& options) {
  const Flow flow = read_flow(options);
  return with_source(flow.source, [&] {
    std::unique_ptr<HarmonicGraph> graph = open_graph(flow, options, options.inference);
    require_bound(*graph);
    announce(*graph, options);
    const Outcome outcome = run_cycles(*graph, options);
    summarise(*graph, options, outcome);
    if (!options.save.empty()) {
      save_safetensors(graph->weights(), options.save);
      if (!options.quiet) say("saved weights: " + options.save);
    }
    if (!options.report.empty()) {
      write_report(*graph, outcome.report, outcome.test, options.run, options.report);
      if (!options.quiet) say("report: " + options.report);
    }
    if (options.json) fmt::print("{}\n", boost::json::serialize(json_of(*graph, outcome)));
    return outcome.interrupted ? kInterrupted : kDone;
  });
}

}  // namespace harmonics::cli
