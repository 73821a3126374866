// harmonics serve: answers requests with fixed weights.
#include <atomic>
#include <chrono>
#include <csignal>

#include <unistd.h>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/checkpoint/checkpoint_folder.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/run/serving.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/cycle/snapshot.hpp"
#include "engine/serving/predictor.hpp"

namespace harmonics::engine::cli {

namespace {

// Blocks these signals for threads made from now on. One thread waits for them.
sigset_t hold_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);  // under nohup it stays ignored
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

// Returns the training step of the loaded weights, or 0 if their file does not name it.
WeightsVersion version_of(const BoundGraph& graph, const std::string& path) {
  if (graph.version()) return *graph.version();
  if (!holds_state(read_safetensors(path))) return {};
  const RunState state = read_checkpoint(path).state;
  return {static_cast<int>(state.cycle), state.step};
}

int wait_for_end(const sigset_t& signals) {
  int signal = 0;
  sigwait(&signals, &signal);
  return signal;
}

}  // namespace

int serve_command(const Options& options) {
  const Flow flow = read_flow(options);
  return with_source(flow.source, [&] {
    if (options.weights.empty())
      throw Error(ErrorKind::Usage, "no weights are given", {},
                  {"add --weights FILE, as written by run --save or --checkpoint"});
    Options given = options;
    if (given.serve.empty()) given.serve = {"127.0.0.1:8080"};
    const std::unique_ptr<BoundGraph> graph = open_graph(flow, given, true);
    const int cycle = static_cast<int>(options.cycle) - 1;
    if (static_cast<size_t>(cycle) >= graph->graph().cycles.size())
      throw Error(ErrorKind::Usage,
                  fmt::format("'{}' has {} cycles", graph->graph().name, graph->graph().cycles.size()), {},
                  {"--cycle counts from 1"});
    graph->assume_declared_streams();
    const sigset_t signals = hold_signals();
    Serving serving(given, *graph);
    const Model model = graph->model(cycle);
    model.trace(model.entry("forward"), {});  // declares its parameters
    const auto snapshots = std::make_shared<Snapshots>(graph->store(), version_of(*graph, options.weights));
    RunScene scene;
    scene.cycle = cycle;
    std::atomic<bool> told{false};
    scene.stop = [&] { told = true, ::kill(::getpid(), SIGTERM); };
    serving.control().begin(std::move(scene));
    serving.control().set_phase(RunPhase::serving);
    serving.serve(cycle, snapshots);
    const auto begun = std::chrono::steady_clock::now();
    const int signal = wait_for_end(signals);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    serving.control().end(true);
    const AnswerTimes::Report r = serving.predictor().report();
    if (!options.quiet)
      say(fmt::format("answered {} requests of {} samples in {}", thousands(static_cast<int64_t>(r.requests)),
                      thousands(static_cast<int64_t>(r.samples)), duration(seconds)));
    if (r.not_finite > 0)
      print_note(
          fmt::format("the answers to {} samples held infinity or NaN", thousands(static_cast<int64_t>(r.not_finite))));
    if (options.json)
      print_json(boost::json::object{{"version", 1},
                                     {"graph", graph->graph().name},
                                     {"seconds", seconds},
                                     {"requests", r.requests},
                                     {"samples", r.samples},
                                     {"refused", r.refused},
                                     {"failed", r.failed},
                                     {"not_finite", r.not_finite}});
    return told ? static_cast<int>(kDone) : 128 + signal;
  });
}

}  // namespace harmonics::engine::cli
