// harmonics run: trains (or infers if the graph has no tap), tests and saves.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/file.hpp"
#include "engine/cli/run/changed_flow.hpp"
#include "engine/cli/run/checkpointing.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/terminal/command_text.hpp"
#include "engine/cli/run/kept_weights.hpp"
#include "engine/cli/run/last_weights.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/run/outputs.hpp"
#include "engine/cli/run/pictures.hpp"
#include "engine/cli/run/report.hpp"
#include "engine/cli/run/run_log.hpp"
#include "engine/cli/run/run_outcome.hpp"
#include "engine/cli/run/serving.hpp"
#include "engine/cli/run/stop_signals.hpp"
#include "engine/cli/run/trained_adapters.hpp"
#include "engine/cli/run/watched_cycle.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/cycle/cycle_plan.hpp"
#include "engine/cycle/cycle_runtime.hpp"
#include "engine/measure/examples.hpp"
#include "engine/model/sealed_file.hpp"

namespace harmonics::engine::cli {

namespace {

void require_bound(BoundGraph& graph) {
  for (size_t cycle = 0; cycle < graph.graph().cycles.size(); ++cycle)
    for (int n : graph.graph().producers_used(static_cast<int>(cycle), true))
      if (!graph.streams().bound(n)) {
        const std::string& name = graph.graph().nodes[static_cast<size_t>(n)].name;
        throw Error(ErrorKind::Usage, fmt::format("producer '{}' is not bound", name), {},
                    {fmt::format("bind it: --producer {}=file:PATH", name)});
      }
}

void announce(BoundGraph& graph, const Options& options) {
  if (options.quiet) return;
  std::string layers;
  for (int n : graph.graph().order()) {
    const auto it = graph.widths().of.find(n);
    if (it == graph.widths().of.end() || graph.graph().nodes[static_cast<size_t>(n)].kind != DeclarationKind::Layer)
      continue;
    layers += fmt::format("{}{} {}", layers.empty() ? "" : " · ", graph.graph().nodes[static_cast<size_t>(n)].name,
                          it->second.shape.str());
  }
  say(fmt::format("{}: {}", graph.graph().name, layers));
  for (const std::string& note : graph.widths().notes) print_note(note);
  for (const auto& [n, type] : graph.types()) {
    if (type.dtype == DType::U8 && type.sample.rank() > 0 && read_as_numbers(graph.graph(), n, type) &&
        graph.streams().bound(n))
      print_note(
          fmt::format("the bytes of '{}' are scaled to [0, 1]", graph.graph().nodes[static_cast<size_t>(n)].name));
  }
}

// Binds results of an inference without a consumer to standard output.
void bind_results(BoundGraph& graph, int cycle) {
  for (int n : graph.results(cycle)) {
    const GraphNode& node = graph.graph().nodes[static_cast<size_t>(n)];
    const bool consumer = node.kind == DeclarationKind::Consumer;
    if (!graph.sinks().count(consumer ? n : -1))
      graph.bind_consumer(consumer ? n : -1, open_sink(graph.registry(), node.name, parse_address("stdout:")));
  }
}

bool passes(ErrorKind kind) { return is_of_streams(kind) || kind == ErrorKind::Output; }

// Runs a cycle, from the checkpoint if there is one.
CycleReport run_cycle(CycleRuntime& runtime, Checkpointing& checkpoints, StopSignals& signals, bool trains) {
  struct Watched {
    StopSignals& signals;
    ~Watched() { signals.watch(nullptr); }
  } const watched{signals};
  signals.watch(&runtime);
  if (!trains) return runtime.run();
  runtime.set_checkpoints(checkpoints.writer());
  if (checkpoints.from()) runtime.resume(checkpoints.take());
  return runtime.run();
}

void expect_cycle(const BoundGraph& graph, Checkpointing& checkpoints) {
  const size_t cycles = graph.graph().cycles.size();
  if (checkpoints.from() && static_cast<size_t>(checkpoints.from()->state.cycle) >= cycles)
    throw Error(ErrorKind::Weights, fmt::format("'{}' was written in cycle {}; '{}' has {}", checkpoints.from()->path,
                                                checkpoints.from()->state.cycle + 1, graph.graph().name, cycles));
  for (size_t cycle = 0; cycle < cycles; ++cycle)
    if (graph.graph().trains(static_cast<int>(cycle))) return;
  if (checkpoints.writer() || checkpoints.from())
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' does not train: it has nothing to keep in a checkpoint", graph.graph().name));
}

// Reports differences between loaded weights and the graph, each once and before the first step that uses the weights.
class WeightNotes {
 public:
  WeightNotes(BoundGraph& graph, const Options& options) : graph_(graph) {
    const int cycles = static_cast<int>(graph.graph().cycles.size());
    for (int cycle = 1; !options.weights.empty() && cycle < cycles; ++cycle)
      if (!reads_live(cycle)) {
        CycleRuntime(graph, cycle, options.run).declare_parameters();
        tell();
      }
  }
  void tell() {
    for (const std::string& text : graph_.weight_notes())
      if (told_.insert(text).second) print_note(text);
  }

 private:
  bool reads_live(int cycle) const {
    const std::vector<int> producers = graph_.graph().producers_used(cycle, true);
    return std::any_of(producers.begin(), producers.end(), [&](int n) { return graph_.streams().source(n).once(); });
  }
  BoundGraph& graph_;
  std::set<std::string> told_;
};

// Finishes all consumers and returns the first error. Called after the weights are saved, because the last write may
// fail or block.
std::optional<Error> finish_results(BoundGraph& graph) {
  std::optional<Error> failure;
  for (auto& [n, sink] : graph.sinks()) {
    try {
      sink->finish();
    } catch (const Error& e) {
      if (!failure) failure = e;
    }
  }
  return failure;
}

RunOutcome run_cycles(BoundGraph& graph, const Options& options, const RunEvents& events, Checkpointing& checkpoints,
                      Serving& serving, StopSignals& signals, LastWeights& last) {
  RunOutcome outcome;
  expect_cycle(graph, checkpoints);
  const int cycles = static_cast<int>(graph.graph().cycles.size());
  WeightNotes weight_notes(graph, options);
  const auto count = [&](const CycleReport& report) {
    outcome.used.insert(report.used.begin(), report.used.end());
    outcome.changed.insert(report.trained.begin(), report.trained.end());
  };
  for (int cycle = 0; cycle < cycles; ++cycle) {
    const bool trains = graph.graph().trains(cycle);
    if (checkpoints.from() && cycle < checkpoints.from()->state.cycle) {  // finished before the checkpoint
      if (!trains) continue;
      CycleRuntime over(graph, cycle, options.run);
      over.declare_parameters();
      count(over.report());
      continue;
    }
    if (!trains) bind_results(graph, cycle);
    CycleRuntime runtime(graph, cycle, options.run);
    if (!options.weights.empty()) runtime.set_origin(options.weights);
    WatchedCycle watched(graph, options, cycle, trains);
    watched.attach(runtime, [&] {
      weight_notes.tell();
      if (events.started) events.started();
    });
    const Serving::Attached attached = serving.attach(runtime, cycle);
    CycleReport report;
    try {
      report = run_cycle(runtime, checkpoints, signals, trains);
      if (trains && report.steps > 0) last.set(graph.weights());
    } catch (const Error& e) {
      // After these errors the weights are valid. After other errors, of a plugin or a device, they may have any
      // values.
      const bool learned = trains && runtime.report().steps > 0;
      if (!(learned || outcome.trained) || !(e.kind() == ErrorKind::Diverged || passes(e.kind()))) throw;
      outcome.failure = e;
      if (!learned) break;  // nothing was learned in this cycle; earlier weights are kept
      report = runtime.report();
    }
    watched.end();
    for (const std::string& text : report.notes) print_note(text);
    weight_notes.tell();
    count(report);
    outcome.interrupted = report.stopped_by == "interrupt";
    if (trains || !outcome.trained) {
      outcome.rates = watched.rates_of(report);
      outcome.report = std::move(report);
    }
    outcome.trained = outcome.trained || trains;
    if (trains) outcome.training = graph.settings(cycle, options.run).training(), outcome.cycle = cycle;
    if (outcome.interrupted || outcome.failure) break;
    if (const Evaluation* validation = validation_of(outcome.report); validation && trains)
      for (const LeftOver& left : validation->left_over) print_note("validation: " + left.text);
    // A request to stop after the last step of this cycle prevents the next cycle.
    if (cycle + 1 < cycles && (runtime.asked_to_stop() || signals.stopped())) {
      outcome.interrupted = true;
      outcome.report.stopped_by = "interrupt";
      break;
    }
  }
  if (Checkpointer* const writer = checkpoints.writer()) {
    outcome.checkpoint = writer->last();
    outcome.best = writer->best();
    for (BestCheckpoint& one : outcome.best) one.file = writer->folder().path() + "/" + one.file;
  }
  return outcome;
}

// Checks the conditions of every cycle before the first one runs, which may take hours.
void check_conditions(BoundGraph& graph, const Options& options) {
  for (size_t cycle = 0; cycle < graph.graph().cycles.size(); ++cycle)
    expect_validation(graph, static_cast<int>(cycle), graph.settings(static_cast<int>(cycle), options.run));
}

// Checks the data for tests or validations before the first cycle runs.
void check_evaluation(BoundGraph& graph, const Options& options, StreamSet& streams, Purpose purpose) {
  if (streams.empty()) return;
  std::set<std::string> told;
  for (size_t cycle = 0; cycle < graph.graph().cycles.size(); ++cycle) {
    if (!graph.graph().trains(static_cast<int>(cycle))) continue;
    const auto text = expect_evaluable(graph, static_cast<int>(cycle), streams, options.run, purpose);
    if (text && !options.quiet && told.insert(*text).second)
      print_note((purpose == Purpose::test ? "test: " : "validation: ") + *text);
  }
}

bool trains_somewhere(const Graph& graph) {
  for (size_t cycle = 0; cycle < graph.cycles.size(); ++cycle)
    if (graph.trains(static_cast<int>(cycle))) return true;
  return false;
}

// Notes before the first step that the weights are not saved, so that the run can be started again with a flag.
void announce_unsaved(const Graph& graph, const Options& options, Checkpointing& checkpoints) {
  if (options.quiet || !options.save.empty() || checkpoints.writer() || !trains_somewhere(graph)) return;
  const std::string why_not = options.no_keep ? "" : why_not_kept();
  print_note("the weights are not saved: --save FILE saves them" +
             (options.no_keep   ? ""
              : why_not.empty() ? fmt::format("; a copy will be kept in {} (--no-keep: none)", kept_folder())
                                : "; no copy will be kept: " + why_not));
}

// Throws before the run if pictures or logs cannot be written.
void check_pictures(const BoundGraph& graph, const Options& options) {
  expect_ending("--plot", options.plot, {".svg"}, "a picture as SVG");
  expect_ending("--confusion", options.confusion, {".svg"}, "a picture as SVG");
  expect_ending("--report", options.report, {".html", ".htm", ".svg"}, "a page, or a picture");
  for (const std::string& path : options.logs) make_run_log(path);
  if (options.tests.empty() && options.validations.empty() &&
      (!options.confusion.empty() || asks_for_confusion(options)))
    throw Error(ErrorKind::Usage,
                fmt::format("{} predictions on validation or test data, but there is none",
                            options.confusion.empty() ? "--metric confusion counts" : "--confusion draws"),
                {}, {"give it: --test NAME=ADDRESS or --validate NAME=ADDRESS"});
  for (size_t cycle = 0; cycle < graph.graph().cycles.size(); ++cycle)
    if (graph.graph().trains(static_cast<int>(cycle))) return;
  const std::pair<const char*, bool> needs[] = {{"--validate", !options.validations.empty()},
                                                {"--plot", !options.plot.empty()},
                                                {"--confusion", !options.confusion.empty()},
                                                {"--metric", !options.run.metrics.empty()}};
  for (const auto& [flag, given] : needs)
    if (given)
      throw Error(ErrorKind::Usage,
                  fmt::format("{} needs training, but no cycle of '{}' has a training tap", flag, graph.graph().name),
                  {}, {"write one: LAYER <-(cross_entropy)- LABELS;"});
}

void draw(BoundGraph& graph, const Options& options, const RunOutcome& outcome, Outputs& outputs) {
  const auto drawn = [&](const char* what, const std::string& path) {
    if (!options.quiet) say(fmt::format("{}: {}", what, path));
  };
  std::vector<std::string> command = options.command_line;
  if (!command.empty()) command.front() = "harmonics";
  ReportedRun run{outcome.report, outcome.test, options.run, command_text(command), {}};
  for (const std::string& address : options.producers)
    run.data.push_back({outcome.trained ? "training" : "input", address});
  for (const std::string& address : options.validations) run.data.push_back({"validation", address});
  for (const std::string& address : options.tests) run.data.push_back({"test", address});
  if (!options.plot.empty())
    outputs.attempt(
        [&] { write_file_atomically(options.plot, curve_svg(outcome.report)), drawn("curve", options.plot); });
  if (!options.confusion.empty())
    outputs.attempt([&] { write_confusion(graph, run, options.confusion), drawn("confusion", options.confusion); });
  if (options.report.empty()) return;
  const bool picture = options.report.size() > 4 && options.report.compare(options.report.size() - 4, 4, ".svg") == 0;
  outputs.attempt([&] {
    if (picture)
      write_file_atomically(options.report, curve_svg(outcome.report));
    else
      write_report(graph, run, options.report);
    drawn("report", options.report);
  });
}

void tell_missing_checkpoint(const RunOutcome& outcome) {
  const std::string& why = outcome.report.no_checkpoint;
  if (!why.empty()) print_error(Error(ErrorKind::Output, "the last checkpoint was not written: " + why));
}

// Returns the exit code of the run. Prints how to resume if that is possible.
int end_of_run(const RunOutcome& outcome, const Checkpointing& checkpoints, const Outputs& outputs) {
  tell_missing_checkpoint(outcome);
  outputs.end();
  const bool resumable = outcome.interrupted && checkpoints.print_resume_command();
  if (!outcome.report.no_checkpoint.empty()) return resumable ? kResumable : kCannotWrite;
  return outcome.interrupted && StopSignals::first() != 0 ? 128 + StopSignals::first()
                                                          : kDone;  // first() is 0 after a control message
}

// Keeps a copy of otherwise unsaved weights.
void keep(BoundGraph& graph, const Options& options, RunOutcome& outcome) {
  const bool elsewhere = !outcome.checkpoint.empty() && outcome.report.no_checkpoint.empty();
  if (elsewhere || options.no_keep || !outcome.trained || outcome.report.steps == 0) return;
  try {
    outcome.kept = keep_weights(graph.weights(), graph.graph().name);
  } catch (const Error& e) {
    outcome.not_kept = e.what();
  }
}

void save(BoundGraph& graph, const Options& options, RunOutcome& outcome, Outputs& outputs) {
  if (options.save.empty()) return keep(graph, options, outcome);
  outputs.attempt([&] {
    const bool elsewhere = !outcome.checkpoint.empty() && outcome.report.no_checkpoint.empty();
    if (elsewhere)
      save_sealed(graph.weights(), options.save);
    else
      save_or_rescue(graph.weights(), options.save);
    if (!options.quiet) say("saved weights: " + options.save);
  });
}

void save_adapters(BoundGraph& graph, const Options& options, Outputs& outputs) {
  if (options.save_adapter.empty()) return;
  outputs.attempt([&] {
    for (const std::string& path : save_trained_adapters(graph, options.save_adapter))
      if (!options.quiet) say("saved adapter: " + path);
  });
}

// Tests after the weights are saved, so that a failure or a signal loses only figures.
void test(BoundGraph& graph, const Options& options, RunOutcome& outcome, const StopSignals& signals) {
  if (outcome.cycle < 0 || outcome.interrupted || outcome.failure || graph.test_streams().empty()) return;
  outcome.tested = true;
  try {
    Evaluator test(graph, outcome.cycle, graph.test_streams(), options.run, Purpose::test);
    outcome.test = test.run([&] { return signals.stopped(); });
    outcome.tested = outcome.test.has_value();
    if (!outcome.tested) {
      outcome.interrupted = true;
      outcome.report.stopped_by = "interrupt";
      return;
    }
    for (const LeftOver& left : outcome.test->left_over) print_note("test: " + left.text);
  } catch (const Error& e) {
    outcome.failure = e;
  }
}

void report(BoundGraph& graph, const Options& options, const RunOutcome& outcome, Outputs& outputs) {
  draw(graph, options, outcome, outputs);
  if (!options.json) return;
  print_json(run_object(graph, options, outcome));
}

// Returns the action of the second signal; empty if there is nothing to save.
StopSignals::Leave leave_of(const Graph& graph, const Options& options, Checkpointing& checkpoints, LastWeights& last) {
  if (checkpoints.writer()) return [&](CycleRuntime* runtime, int signal) { checkpoints.leave(runtime, signal); };
  if (!trains_somewhere(graph) || (options.no_keep && options.save.empty())) return {};
  return [&](CycleRuntime* runtime, int signal) { last.leave(runtime, signal); };
}

int train_and_save(BoundGraph& graph, const Options& options, const RunEvents& events, Checkpointing& checkpoints,
                   Serving& serving) {
  RunOutcome outcome;
  Outputs outputs;
  {
    LastWeights last(options, graph.graph().name);
    StopSignals signals(leave_of(graph.graph(), options, checkpoints, last));
    outcome = run_cycles(graph, options, events, checkpoints, serving, signals, last);
    last.save([&] {
      save(graph, options, outcome, outputs);
      save_adapters(graph, options, outputs);
      return outcome.kept.empty() ? "" : "kept weights: " + outcome.kept;
    });
    if (!outcome.failure) outcome.failure = finish_results(graph);
    test(graph, options, outcome, signals);
  }
  summarise(graph, options, outcome);
  if (!outcome.failure) outcome.failure = undefined_figure(outcome);
  try {
    report(graph, options, outcome, outputs);
    if (outcome.failure) outputs.end();
  } catch (const Error& e) {
    if (!outcome.failure) throw;
    print_error(e);
  }
  if (outcome.failure) {
    tell_missing_checkpoint(outcome);
    throw *outcome.failure;
  }
  return end_of_run(outcome, checkpoints, outputs);
}

}  // namespace

int run_command(const Options& options) { return run_flow(read_flow(options), options); }

int run_flow(const Flow& flow, const Options& given, const RunEvents& events) {
  Options options = given;
  if (options.serve.empty() && !options.ui) refuse_without(options, {"latency", "token"}, "--serve ADDRESS");
  if (options.logs.empty() && options.tensorboard.empty()) refuse_without(options, {"log-every"}, "--log FILE.csv");
  // A report contains the confusion matrix, except for language models, which have thousands of classes.
  options.run.confusion = !options.confusion.empty() || (!options.report.empty() && options.tokens_of_sample == 0);
  ChangedFlow changed(flow, options);
  const std::shared_ptr<const SourceText> none;
  return with_source(options.generated_flow ? none : changed.source(), [&] {
    std::unique_ptr<BoundGraph> graph;
    std::optional<Serving> serving;  // serves the status while streams wait for their first sample
    graph = open_graph(changed.flow(), options, options.inference, [&](BoundGraph& known) {
      changed.bind(known);
      serving.emplace(options, known).expect_streams(&changed);
    });
    require_bound(*graph);
    check_pictures(*graph, options);
    expect_writable_outputs(options);
    check_conditions(*graph, options);
    check_evaluation(*graph, options, graph->validation_streams(), Purpose::validation);
    check_evaluation(*graph, options, graph->test_streams(), Purpose::test);
    if (options.verb == "infer") expect_trained(*graph, options);
    if (!options.save.empty() || !options.checkpoint.empty() || options.resume) graph->expect_savable();
    if (!options.save_adapter.empty()) expect_trained_adapters(*graph);
    Checkpointing checkpoints(options);
    if (checkpoints.from() && events.resuming) events.resuming(*checkpoints.from());
    announce(*graph, options);
    announce_unsaved(graph->graph(), options, checkpoints);
    const std::string before = checkpoints.writer() ? checkpoints.writer()->last() : "";
    try {
      return train_and_save(*graph, options, events, checkpoints, *serving);
    } catch (const Error& e) {
      const bool diverged = e.kind() == ErrorKind::Diverged;
      if (!(diverged || passes(e.kind())) || !checkpoints.writer() || checkpoints.writer()->last() == before) throw;
      print_error(e, changed.source().get());
      if (diverged) {
        say("the last checkpoint: " + checkpoints.writer()->last());
        return exit_code(e.kind());
      }
      return checkpoints.print_resume_command() ? kResumable : exit_code(e.kind());
    }
  });
}

}  // namespace harmonics::engine::cli
