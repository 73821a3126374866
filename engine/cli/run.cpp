// harmonics run: train (or infer, when the graph has no tap), test, save.
#include <algorithm>
#include <cmath>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/file.hpp"
#include "engine/cli/checkpointing.hpp"
#include "engine/cli/command.hpp"
#include "engine/cli/command_text.hpp"
#include "engine/cli/open_graph.hpp"
#include "engine/cli/output.hpp"
#include "engine/cli/outputs.hpp"
#include "engine/cli/pictures.hpp"
#include "engine/cli/report.hpp"
#include "engine/cli/run_log.hpp"
#include "engine/cli/serving.hpp"
#include "engine/cli/stop_signals.hpp"
#include "engine/cli/terminal.hpp"
#include "engine/model/sealed_file.hpp"
#include "engine/runtime/cycle_plan.hpp"
#include "engine/runtime/cycle_runtime.hpp"
#include "engine/runtime/examples.hpp"

namespace harmonics::cli {

namespace {

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

struct RunOutcome {
  CycleReport report;  // of the last cycle that trained, else of the last
  bool trained = false, interrupted = false, tested = false;
  std::optional<Evaluation> test;
  int cycle = -1;        // that trained last
  std::string training;  // by what it was trained
  std::optional<Error> failure;  // what ended it: the steps before it are kept
  std::string checkpoint;  // the newest
};

// JSON has no word for infinity and NaN.
boost::json::value json_of(double value, bool measured = true) {
  return measured && std::isfinite(value) ? boost::json::value(value) : boost::json::value(nullptr);
}

boost::json::object json_of(const std::map<std::string, double>& values) {
  boost::json::object o;
  for (const auto& [name, value] : values) o[name] = json_of(value);
  return o;
}

// The last epoch that was validated, if there was any.
const EpochReport* validated(const CycleReport& report) {
  for (auto it = report.by_epoch.rbegin(); it != report.by_epoch.rend(); ++it)
    if (it->validation) return &*it;
  return nullptr;
}

const Evaluation* validation_of(const CycleReport& report) {
  const EpochReport* epoch = validated(report);
  return epoch ? &*epoch->validation : nullptr;
}

// What the last passes left over, by purpose of the streams.
boost::json::array left_over_of(const RunOutcome& outcome) {
  boost::json::array all;
  const auto add = [&](const char* of, const std::vector<LeftOver>& streams) {
    for (const LeftOver& left : streams) all.push_back(boost::json::object{{"of", of}, {"producer", left.producer}, {"samples", left.samples}});
  };
  add("run", outcome.report.left_over);
  if (const Evaluation* validation = validation_of(outcome.report)) add("validation", validation->left_over);
  if (outcome.test) add("test", outcome.test->left_over);
  return all;
}

boost::json::object json_of(const HarmonicGraph& graph, const RunOutcome& outcome) {
  const CycleReport& r = outcome.report;
  boost::json::object o;
  o["version"] = 1;
  o["graph"] = graph.graph().name;
  o["epochs"] = r.epochs;
  o["steps"] = r.steps;
  o["samples"] = r.samples;
  o["seconds"] = json_of(r.seconds);
  o["samples_per_second"] = json_of(r.samples_per_second);
  o["loss"] = json_of(r.loss, outcome.trained && r.steps > 0);
  o["accuracy"] = json_of(r.accuracy, r.accuracy >= 0);
  o["test_loss"] = json_of(outcome.test ? outcome.test->loss : 0, outcome.test.has_value());
  o["test_accuracy"] = json_of(outcome.test ? outcome.test->accuracy : -1, outcome.test && outcome.test->accuracy >= 0);
  o["stopped_by"] = r.stopped_by;
  o["left_over"] = left_over_of(outcome);
  o["lost"] = boost::json::value_from(r.lost);
  o["refused"] = boost::json::value_from(r.refused);
  o["training"] = outcome.trained ? boost::json::value(outcome.training) : boost::json::value(nullptr);
  o["learning_rate"] = json_of(r.learning_rate, outcome.trained);
  o["resumed_at"] = r.resumed_at;
  o["checkpoint"] = outcome.checkpoint.empty() ? boost::json::value(nullptr) : boost::json::value(outcome.checkpoint);
  o["metrics"] = json_of(r.metrics);
  const Evaluation* validation = validation_of(r);
  o["validation"] = validation ? boost::json::value(json_of(validation->all())) : boost::json::value(nullptr);
  o["validation_step"] = validation ? boost::json::value(validated(r)->step) : boost::json::value(nullptr);
  o["test"] = outcome.test ? boost::json::value(json_of(outcome.test->all())) : boost::json::value(nullptr);
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
  for (const auto& [n, type] : graph.types()) {
    if (type.dtype == DType::U8 && type.sample.rank() > 0 && read_as_numbers(graph.graph(), n, type) && graph.streams().bound(n))
      print_note(fmt::format("the bytes of '{}' are scaled to [0, 1]", graph.graph().nodes[static_cast<size_t>(n)].name));
  }
}

// What an inference makes and nobody asked to have elsewhere goes to standard output.
void bind_results(HarmonicGraph& graph, int cycle) {
  for (int n : graph.results(cycle)) {
    const GraphNode& node = graph.graph().nodes[static_cast<size_t>(n)];
    const bool consumer = node.kind == DeclarationKind::Consumer;
    if (!graph.sinks().count(consumer ? n : -1)) graph.bind_consumer(consumer ? n : -1, open_sink(graph.registry(), node.name, parse_address("stdout:")));
  }
}

bool passes(ErrorKind kind) { return is_of_streams(kind) || kind == ErrorKind::Output; }

// Runs it, on from the checkpoint if there is one.
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

void expect_cycle(const HarmonicGraph& graph, Checkpointing& checkpoints) {
  const size_t cycles = graph.graph().cycles.size();
  if (checkpoints.from() && static_cast<size_t>(checkpoints.from()->state.cycle) >= cycles)
    throw Error(ErrorKind::Weights, fmt::format("'{}' was written in cycle {}; '{}' has {}", checkpoints.from()->path, checkpoints.from()->state.cycle + 1, graph.graph().name, cycles));
  for (size_t cycle = 0; cycle < cycles; ++cycle)
    if (graph.graph().trains(static_cast<int>(cycle))) return;
  if (checkpoints.writer() || checkpoints.from()) throw Error(ErrorKind::Usage, fmt::format("'{}' does not train: it has nothing to keep in a checkpoint", graph.graph().name));
}

std::string value_text(const std::string& name, double value) {
  const bool share = name == "accuracy" || name.rfind("top", 0) == 0;
  return !std::isfinite(value) ? "undefined" : share ? percent(value) : fmt::format("{:.4g}", value);
}

// "loss 0.1, accuracy 98.00 %, f1 0.97"
std::string figures_text(const Evaluation& e) {
  std::string s = fmt::format("loss {:.4g}", e.loss);
  for (const LayerFigures& layer : e.layers)
    for (const Figure& f : layer.figures) {
      if (f.name == "loss" && e.layers.size() == 1) continue;
      s += fmt::format(", {}{} {}", e.layers.size() > 1 ? layer.layer + "." : "", f.name, value_text(f.name, f.value));
    }
  return s;
}

double speed_of(const EpochReport& e) { return e.seconds > 0 ? static_cast<double>(e.samples) / e.seconds : 0; }

std::string epoch_text(const EpochReport& e, bool constant_rate) {
  std::string s = fmt::format("epoch {:<3} loss {:<8.4g}{} {}  {}", e.epoch, e.loss,
                              e.accuracy >= 0 ? " accuracy " + percent(e.accuracy) + " " : "", rate(speed_of(e)),
                              duration(e.seconds));
  for (const auto& [name, value] : e.figures)
    if (name.find('.') == std::string::npos) s += fmt::format("  {} {}", name, value_text(name, value));
  if (!constant_rate) s += fmt::format("  lr {:.3g}", e.learning_rate);
  if (e.validation) s += "  · validation " + figures_text(*e.validation);
  return s;
}

// The logs that --log and --tensorboard ask for.
class Logs {
 public:
  Logs(const Options& options, std::function<void(const std::string&)> note) : note_(std::move(note)) {
    for (const std::string& path : options.logs) logs_.push_back(make_run_log(path));
    if (!options.tensorboard.empty()) logs_.push_back(make_tensorboard_log(options.tensorboard));
  }
  void attach(CycleRuntime& runtime, const Options& options) {
    if (logs_.empty()) return;
    runtime.on_start([this](const std::vector<std::string>& names, const Beginning& from) {
      for (auto& log : logs_) log->begin(names, from);
    });
    if (options.log_every > 0) runtime.on_step(options.log_every, [this](const StepReport& r) { write({"step", r.epoch, r.step, r.samples, r.seconds, r.samples_per_second, r.learning_rate, r.metrics}); });
  }
  void epoch(const EpochReport& e, const Progress& p) {
    LogRow row{"epoch", e.epoch, e.step, p.samples, p.seconds, speed_of(e), e.learning_rate, e.figures};
    row.values["loss"] = e.loss;
    if (e.accuracy >= 0) row.values[e.accuracy_name] = e.accuracy;
    if (e.validation)
      for (const auto& [name, value] : e.validation->all()) row.values["val." + name] = value;
    write(row);
  }
  void end() const {
    for (const auto& log : logs_)
      if (const auto text = log->gap()) note_(*text);
  }

 private:
  void write(const LogRow& row) {
    for (auto& log : logs_)
      if (const auto text = log->write(row)) note_(*text);
  }
  std::vector<std::unique_ptr<RunLog>> logs_;
  std::function<void(const std::string&)> note_;
};

// What a consumer writes at last may fail too: what was learned is saved all the same.
std::optional<Error> finish_results(HarmonicGraph& graph) {
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

RunOutcome run_cycles(HarmonicGraph& graph, const Options& options, Checkpointing& checkpoints, Serving& serving, StopSignals& signals) {
  RunOutcome outcome;
  expect_cycle(graph, checkpoints);
  const int cycles = static_cast<int>(graph.graph().cycles.size());
  for (int cycle = 0; cycle < cycles; ++cycle) {
    const bool trains = graph.graph().trains(cycle);
    if (checkpoints.from() && cycle < checkpoints.from()->state.cycle) {  // it was over
      if (trains) CycleRuntime(graph, cycle, options.run).declare_parameters();
      continue;
    }
    if (!trains) bind_results(graph, cycle);
    CycleRuntime runtime(graph, cycle, options.run);
    if (!options.weights.empty()) runtime.set_origin(options.weights);
    ProgressLine line(options.quiet || !trains);
    const auto note = [&](const std::string& text) {
      line.clear();
      print_note(text);
    };
    Logs logs(options, note);
    if (trains) logs.attach(runtime, options);
    runtime.on_progress([&](const Progress& p) { line.show(p); });
    runtime.on_epoch([&](const EpochReport& e, const Progress& p) {
      if (!trains) return;
      logs.epoch(e, p);
      if (options.quiet) return;
      line.clear();
      say(epoch_text(e, graph.settings(cycle, options.run).schedule.is_constant()));
    });
    serving.attach(runtime, cycle);
    runtime.on_note(note);
    CycleReport report;
    try {
      report = run_cycle(runtime, checkpoints, signals, trains);
    } catch (const Error& e) {
      // The weights are good. Other errors, of a plugin or a device, may have left anything.
      const bool learned = trains && runtime.report().steps > 0;
      if (!(learned || outcome.trained) || !(e.kind() == ErrorKind::Diverged || passes(e.kind()))) throw;
      outcome.failure = e;
      if (!learned) break;  // in this cycle: what the ones before it learned is kept
      report = runtime.report();
    }
    line.clear();
    logs.end();
    for (const std::string& text : report.notes) print_note(text);
    for (const std::string& text : graph.weight_notes()) print_note(text);
    outcome.interrupted = report.stopped_by == "interrupt";
    if (trains || !outcome.trained) outcome.report = std::move(report);
    outcome.trained = outcome.trained || trains;
    if (trains) outcome.training = graph.settings(cycle, options.run).training(), outcome.cycle = cycle;
    if (outcome.interrupted || outcome.failure) break;
    if (const Evaluation* validation = validation_of(outcome.report); validation && trains)
      for (const LeftOver& left : validation->left_over) print_note("validation: " + left.text);
    // Too late for the last step of this cycle, in time for the first of the next.
    if (cycle + 1 < cycles && (runtime.asked_to_stop() || signals.stopped())) {
      outcome.interrupted = true;
      outcome.report.stopped_by = "interrupt";
      break;
    }
  }
  if (!outcome.failure) outcome.failure = finish_results(graph);
  if (checkpoints.writer()) outcome.checkpoint = checkpoints.writer()->last();
  return outcome;
}

bool asks_for_confusion(const Options& options) { return std::find(options.run.metrics.begin(), options.run.metrics.end(), "confusion") != options.run.metrics.end(); }

// The test, else the last validation.
const Evaluation* judged_last(const RunOutcome& outcome) { return outcome.test ? &*outcome.test : validation_of(outcome.report); }

boost::json::value confusion_json(const Evaluation& e) {
  boost::json::object layers;
  for (const LayerFigures& layer : e.layers) {
    if (layer.table.side == 0) continue;
    boost::json::array rows;
    for (size_t at = 0; at < layer.table.cells.size(); at += layer.table.side) rows.push_back(boost::json::array(layer.table.cells.data() + at, layer.table.cells.data() + at + layer.table.side));
    layers[layer.layer] = std::move(rows);
  }
  return layers;
}

// What came and was not learned: of streams of one source once.
void tell_missing(const CycleReport& r) {
  for (const auto& [name, lost] : r.lost) say(fmt::format("lost: {} sample{} of '{}'", thousands(static_cast<int64_t>(lost)), lost == 1 ? "" : "s", name));
  std::string before;
  for (const auto& [name, refused] : r.refused) {
    const std::string why = r.last_error.count(name) ? r.last_error.at(name) : "", both = std::to_string(refused) + why;
    if (both != before) say(fmt::format("refused: {} sample{} of '{}'{}", thousands(static_cast<int64_t>(refused)), refused == 1 ? "" : "s", name, why.empty() ? "" : "; " + why));
    before = both;
  }
}

void summarise(HarmonicGraph& graph, const Options& options, const RunOutcome& outcome) {
  if (options.quiet) return;
  const CycleReport& r = outcome.report;
  if (!outcome.trained) {
    if (options.weights.empty() && weight_count(graph.store()) > 0) print_note("no --weights were given: the results come from weights that never learned");
    say(fmt::format("inferred {} samples in {} ({})", thousands(r.samples), duration(r.seconds), rate(r.samples_per_second)));
    tell_missing(r);
    return;
  }
  say(fmt::format("trained {} weights on {} samples in {} ({}, stopped by {}): {}", thousands(weight_count(graph.store())), thousands(r.samples), duration(r.seconds), rate(r.samples_per_second), r.stopped_by, loss_text(r)));
  say("by " + outcome.training);
  tell_missing(r);
  if (const EpochReport* e = validated(r))
    say(fmt::format("validation{} on {} samples: {}", e->step == r.steps ? "" : " after step " + thousands(e->step),
                    thousands(e->validation->samples), figures_text(*e->validation)));
  else if (!options.validations.empty()) print_note("the run ended before it was validated");
  if (!outcome.tested && !options.tests.empty()) print_note("the test was left out: the run ended before its time");
  if (outcome.test) say(fmt::format("test on {} samples: {}", thousands(outcome.test->samples), figures_text(*outcome.test)));
  if (const Evaluation* e = judged_last(outcome); e && asks_for_confusion(options))
    for (const LayerFigures& layer : e->layers)
      if (layer.table.side > 0) say(fmt::format("confusion of '{}': {}", layer.layer, confusion_text(layer.table, class_names(graph, layer.layer))));
  if (options.save.empty() && outcome.checkpoint.empty() && !options.json)
    print_note("the weights were not kept: --save FILE keeps them");
}

// Of every cycle, before the first one has run for hours.
void check_conditions(HarmonicGraph& graph, const Options& options) {
  for (size_t cycle = 0; cycle < graph.graph().cycles.size(); ++cycle)
    expect_validation(graph, static_cast<int>(cycle), graph.settings(static_cast<int>(cycle), options.run));
}

// Likewise: data that cannot be tested on.
void check_tests(HarmonicGraph& graph, const Options& options) {
  if (graph.test_streams().empty()) return;
  for (size_t cycle = 0; cycle < graph.graph().cycles.size(); ++cycle)
    if (graph.graph().trains(static_cast<int>(cycle)))
      expect_evaluable(graph, static_cast<int>(cycle), graph.test_streams(), options.run, Purpose::test);
}

// What cannot be drawn or logged is said before the run, not after it.
void check_pictures(const HarmonicGraph& graph, const Options& options) {
  for (const std::string& path : options.logs) make_run_log(path);
  if (options.tests.empty() && options.validations.empty() && (!options.confusion.empty() || asks_for_confusion(options)))
    throw Error(ErrorKind::Usage, fmt::format("{} what the graph says of other data, and there is none", options.confusion.empty() ? "--metric confusion counts" : "--confusion draws"), {}, {"give it: --test NAME=ADDRESS or --validate NAME=ADDRESS"});
  for (size_t cycle = 0; cycle < graph.graph().cycles.size(); ++cycle)
    if (graph.graph().trains(static_cast<int>(cycle))) return;
  const std::pair<const char*, bool> needs[] = {{"--validate", !options.validations.empty()}, {"--plot", !options.plot.empty()}, {"--confusion", !options.confusion.empty()}, {"--metric", !options.run.metrics.empty()}};
  for (const auto& [flag, given] : needs)
    if (given) throw Error(ErrorKind::Usage, fmt::format("{} is about training, and no cycle of '{}' has a training tap", flag, graph.graph().name), {}, {"write one: LAYER <-(cross_entropy)- LABELS;"});
}

void draw(HarmonicGraph& graph, const Options& options, const RunOutcome& outcome, Outputs& outputs) {
  const auto drawn = [&](const char* what, const std::string& path) {
    if (!options.quiet) say(fmt::format("{}: {}", what, path));
  };
  std::vector<std::string> command = options.command_line;
  if (!command.empty()) command.front() = "harmonics";
  const ReportedRun run{outcome.report, outcome.test, options.run, command_text(command)};
  if (!options.plot.empty())
    outputs.attempt([&] { write_file_atomically(options.plot, curve_svg(outcome.report)), drawn("curve", options.plot); });
  if (!options.confusion.empty())
    outputs.attempt([&] { write_confusion(graph, run, options.confusion), drawn("confusion", options.confusion); });
  if (options.report.empty()) return;
  const bool picture = options.report.size() > 4 && options.report.compare(options.report.size() - 4, 4, ".svg") == 0;
  outputs.attempt([&] {
    if (picture) write_file_atomically(options.report, curve_svg(outcome.report));
    else write_report(graph, run, options.report);
    drawn("report", options.report);
  });
}

// A figure that says nothing is a failure, whatever the training was like.
std::optional<Error> undefined_figure(const RunOutcome& outcome) {
  const auto wrong = [](const char* what, double loss) {
    return Error(ErrorKind::Diverged,
                 fmt::format("the loss of the {} is {}", what,
                             std::isnan(loss) ? "nan"
                             : loss > 0       ? "inf"
                                              : "-inf"),
                 {}, {"the weights are finite: look at the data it was measured on"});
  };
  const auto undefined = [](const Evaluation& e) { return e.counts && !std::isfinite(e.loss); };
  if (outcome.test && undefined(*outcome.test)) return wrong("test", outcome.test->loss);
  const Evaluation* validation = validation_of(outcome.report);
  if (validation && undefined(*validation)) return wrong("validation", validation->loss);
  return std::nullopt;
}

void tell_missing_checkpoint(const RunOutcome& outcome) {
  const std::string& why = outcome.report.no_checkpoint;
  if (!why.empty()) print_error(Error(ErrorKind::Output, "the last checkpoint was not written: " + why));
}

// What the exit code is, once all is done; says how to go on where that makes sense.
int end_of_run(const RunOutcome& outcome, const Checkpointing& checkpoints, const Outputs& outputs) {
  tell_missing_checkpoint(outcome);
  outputs.end();
  const bool resumable = outcome.interrupted && checkpoints.tell_how_to_go_on();
  if (!outcome.report.no_checkpoint.empty()) return resumable ? kResumable : kCannotWrite;
  return outcome.interrupted && StopSignals::first() != 0 ? 128 + StopSignals::first() : kDone;  // 0: told so over the control
}

void save(HarmonicGraph& graph, const Options& options, const RunOutcome& outcome, Outputs& outputs) {
  if (options.save.empty()) return;
  outputs.attempt([&] {
    const bool elsewhere = !outcome.checkpoint.empty() && outcome.report.no_checkpoint.empty();
    if (elsewhere) save_sealed(graph.weights(), options.save);
    else save_or_rescue(graph.weights(), options.save);
    if (!options.quiet) say("saved weights: " + options.save);
  });
}

// What comes after the weights are safe: failing here costs figures alone.
void test(HarmonicGraph& graph, const Options& options, RunOutcome& outcome) {
  if (outcome.cycle < 0 || outcome.interrupted || outcome.failure || graph.test_streams().empty()) return;
  outcome.tested = true;
  try {
    outcome.test = evaluate(graph, outcome.cycle, graph.test_streams(), options.run);
    for (const LeftOver& left : outcome.test->left_over) print_note("test: " + left.text);
  } catch (const Error& e) {
    outcome.failure = e;
  }
}

void report(HarmonicGraph& graph, const Options& options, const RunOutcome& outcome, Outputs& outputs) {
  draw(graph, options, outcome, outputs);
  if (!options.json) return;
  boost::json::object o = json_of(graph, outcome);
  const Evaluation* judged = asks_for_confusion(options) ? judged_last(outcome) : nullptr;
  o["confusion"] = judged ? confusion_json(*judged) : boost::json::value(nullptr);
  print_json(o);
}

int train_and_save(HarmonicGraph& graph, const Options& options, Checkpointing& checkpoints, Serving& serving) {
  RunOutcome outcome;
  Outputs outputs;
  {
    StopSignals signals(checkpoints.writer()
                            ? [&](CycleRuntime* runtime, int signal) { checkpoints.leave(runtime, signal); }
                            : StopSignals::Leave());
    outcome = run_cycles(graph, options, checkpoints, serving, signals);
    save(graph, options, outcome, outputs);
  }
  test(graph, options, outcome);
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

int run_command(const Options& given) {
  Options options = given;
  options.run.confusion = !options.confusion.empty() || !options.report.empty();
  const Flow flow = read_flow(options);
  return with_source(flow.source, [&] {
    std::unique_ptr<HarmonicGraph> graph;
    std::optional<Serving> serving;  // open while streams wait for their first sample
    graph = open_graph(flow, options, options.inference, [&](HarmonicGraph& known) { serving.emplace(options, known).expect_streams(); });
    require_bound(*graph);
    check_pictures(*graph, options);
    expect_writable_outputs(options);
    check_conditions(*graph, options);
    check_tests(*graph, options);
    if (!options.save.empty() || !options.checkpoint.empty() || options.resume) graph->expect_savable();
    Checkpointing checkpoints(options);
    announce(*graph, options);
    const std::string before = checkpoints.writer() ? checkpoints.writer()->last() : "";
    try {
      return train_and_save(*graph, options, checkpoints, *serving);
    } catch (const Error& e) {
      const bool diverged = e.kind() == ErrorKind::Diverged;
      if (!(diverged || passes(e.kind())) || !checkpoints.writer() || checkpoints.writer()->last() == before) throw;
      print_error(e, flow.source.get());
      if (diverged) {
        say("the last checkpoint: " + checkpoints.writer()->last());
        return exit_code(e.kind());
      }
      return checkpoints.tell_how_to_go_on() ? kResumable : exit_code(e.kind());
    }
  });
}

}  // namespace harmonics::cli
