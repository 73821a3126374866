// harmonics profile: breaks down the time of a step and compares it with the machine's peaks.
#include <algorithm>
#include <fstream>
#include <map>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/cli/run/allocations.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/run/outputs.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/run/prepared.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/cli/run/trace.hpp"
#include "engine/cycle/cycle_runtime.hpp"
#include "engine/model/imported.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/training/step_memory.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

constexpr uint64_t kTraced = 20;

struct Subject {  // the profiled step
  std::string graph;
  PreparedSettings settings;
  bool random = false;  // some samples are random
  double in_flow = -1;  // seconds per step within the flow graph; -1: not measured
  MemoryReport memory = {};
};

// A line of the table: the steps of one functional, or a single step.
struct Line {
  std::string name, details = {};
  size_t steps = 0;
  double seconds = 0, flops = 0, bytes = 0, floor = 0;

  void add(const ProfiledStep& s) {
    ++steps;
    seconds += s.seconds;
    flops += s.flops;
    bytes += s.bytes;
    floor += s.floor;
  }
  double per_second(double amount) const { return seconds > 0 ? amount / seconds : 0; }
  double of_floor() const { return seconds > 0 ? floor / seconds : 1; }
};

std::vector<Line> sorted(std::vector<Line> lines) {
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.seconds > b.seconds; });
  return lines;
}

std::vector<Line> by_step(const Profile& p) {
  std::vector<Line> lines;
  for (const ProfiledStep& s : p.steps) {
    Line line{.name = s.what,
              .details = fmt::format("{:>5}  {:>4}  {:<26} {:<24} {}{}", s.parts, s.index, s.what, s.kernel, s.scope,
                                     s.origin.empty() ? "" : "  " + s.origin)};
    line.add(s);
    lines.push_back(std::move(line));
  }
  return sorted(std::move(lines));
}

// Returns the lines, named and sorted.
std::vector<Line> under_names(std::map<std::string, Line> found) {
  std::vector<Line> lines;
  for (auto& [name, line] : found) {
    line.name = name;
    line.details = fmt::format("{:>5}  {}", line.steps, name);
    lines.push_back(std::move(line));
  }
  return sorted(std::move(lines));
}

std::vector<Line> by_functional(const Profile& p) {
  std::map<std::string, Line> found;
  for (const ProfiledStep& s : p.steps) found[s.what].add(s);
  return under_names(std::move(found));
}

// Returns one line per operation of blocks, summed over all layers: "QKV", "QKV, gradient". Empty without blocks.
std::vector<Line> by_operation(const Profile& p) {
  std::map<std::string, Line> found;
  for (const ProfiledStep& s : p.steps) {
    const NodeScope scope = scope_of_text(s.scope);
    const auto [layer, operation] = layer_and_operation(scope.path);
    if (layer.empty() || operation.empty() || scope.phase == Phase::optimizer) continue;
    found[operation + (scope.is_forward() ? "" : fmt::format(", {}", phase_name(scope.phase)))].add(s);
  }
  return under_names(std::move(found));
}

void print_lines(const std::vector<Line>& lines, double all, const char* heads) {
  print("{:>10} {:>7} {:>8} {:>8} {:>9} {}\n", "us", "share", "GFLOP/s", "GB/s", "of floor", heads);
  for (const Line& l : lines)
    print("{:>10.2f} {:>5.1f} % {:>8.1f} {:>8.1f} {:>9.2f} {}\n", l.seconds * 1e6, all > 0 ? 100 * l.seconds / all : 0,
          l.per_second(l.flops) / 1e9, l.per_second(l.bytes) / 1e9, l.of_floor(), l.details);
}

std::string over_the_floor(const std::vector<Line>& lines) {
  std::vector<Line> worst = lines;
  std::stable_sort(worst.begin(), worst.end(),
                   [](const Line& a, const Line& b) { return a.seconds - a.floor > b.seconds - b.floor; });
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(worst.size(), 4); ++i)
    if (worst[i].seconds > worst[i].floor)
      text += fmt::format("{}{} {:.2f} us", text.empty() ? "" : ", ", worst[i].name,
                          (worst[i].seconds - worst[i].floor) * 1e6);
  return text.empty() ? "nothing" : text;
}

void print_profile(const Subject& subject, const Profile& p, MachinePeaks& peaks) {
  const PreparedSettings& s = subject.settings;
  print("'{}', a step of {} on {} with {}{}\n", subject.graph, s.trains ? "training" : "inference",
        quantity(s.batch, "sample"), quantity(s.threads, "thread"), s.device == "cpu" ? "" : ", on device " + s.device);
  print("this machine ({}): {:.1f} GFLOP/s; reads {:.1f} GB/s over 128 KiB, {:.1f} over 4 MiB, {:.1f} over 64 MiB\n",
        peaks.instructions(), peaks.peak() / 1e9, peaks.bandwidth(131072) / 1e9, peaks.bandwidth(4194304) / 1e9,
        peaks.bandwidth(67108864) / 1e9);
  if (p.by_device)
    print("times of single steps are by the device's clock, less {:.2f} us between two adjacent events of its queue\n",
          p.waiting * 1e6);
  else if (p.waiting > 0)
    print(
        "times of single steps are by the wall clock around a wait for the device, less {:.2f} us for an empty wait\n",
        p.waiting * 1e6);
  print("\n");
  print_lines(by_step(p), p.kernels, "parts  step  what                       kernel                   where");
  const std::vector<Line> functionals = by_functional(p);
  print("\n");
  print_lines(functionals, p.kernels, "steps  functional");
  if (const std::vector<Line> operations = by_operation(p); !operations.empty()) {
    print("\n");
    print_lines(operations, p.kernels, "steps  operation of the blocks");
  }
  print("\nstep         {:>10.2f} us at best, {:.2f} us in the median run of {}: {} and {}\n", p.seconds * 1e6,
        p.median * 1e6, p.runs, rate(static_cast<double>(s.batch) / p.seconds),
        rate(static_cast<double>(s.batch) / p.median));
  print("kernels      {:>10.2f} us, the best of each together\n", p.kernels * 1e6);
  print("floor        {:>10.2f} us, {:.2f} of the step\n", p.floor * 1e6, p.floor / p.seconds);
  print("engine       {:>10.2f} us for {} steps of the plan with empty kernels\n", p.engine * 1e6, p.steps.size());
  if (subject.in_flow >= 0)
    print("in the flow  {:>10.2f} us a step with reading, joining and metrics (best mean of ten runs)\n",
          subject.in_flow * 1e6);
  print("above floor  {}\n", over_the_floor(functionals));
  if (p.allocations >= 0) print("allocations  {:>10.1f} a step\n", p.allocations);
  print("memory       {:>10} KiB of results, {} KiB of weights and states\n", subject.memory.arena_bytes / 1024,
        subject.memory.state_bytes / 1024);
}

json::object json_of(const Line& l, const char* name) {
  return {{name, l.name},     {"seconds", l.seconds}, {"flops", l.flops},
          {"bytes", l.bytes}, {"floor", l.floor},     {"of_floor", l.of_floor()}};
}

json::object json_of(const Subject& subject, const Profile& p, MachinePeaks& peaks) {
  json::array steps, functionals, operations;
  for (const ProfiledStep& s : p.steps) {
    Line line{.name = s.what};
    line.add(s);
    json::object o = json_of(line, "what");
    o["index"] = s.index;
    o["kernel"] = s.kernel;
    o["scope"] = s.scope;
    o["origin"] = s.origin;
    o["parts"] = s.parts;
    o["median"] = s.median;
    steps.push_back(std::move(o));
  }
  const auto add = [](json::array& to, const std::vector<Line>& lines, const char* name) {
    for (const Line& l : lines) {
      json::object o = json_of(l, name);
      o["steps"] = l.steps;
      to.push_back(std::move(o));
    }
  };
  add(functionals, by_functional(p), "functional");
  add(operations, by_operation(p), "operation");
  return {{"version", 1},
          {"graph", subject.graph},
          {"mode", subject.settings.trains ? "train" : "infer"},
          {"batch", subject.settings.batch},
          {"threads", subject.settings.threads},
          {"device", subject.settings.device},
          {"clock", p.by_device ? "device" : "host"},
          {"waiting", p.waiting},
          {"runs", p.runs},
          {"seconds", p.seconds},
          {"median", p.median},
          {"samples_per_second", static_cast<double>(subject.settings.batch) / p.seconds},
          {"kernels", p.kernels},
          {"floor", p.floor},
          {"of_floor", p.floor / p.seconds},
          {"engine", p.engine},
          {"in_flow", subject.in_flow >= 0 ? json::value(subject.in_flow) : json::value(nullptr)},
          {"allocations", p.allocations},
          {"arena_bytes", subject.memory.arena_bytes},
          {"state_bytes", subject.memory.state_bytes},
          {"instructions", peaks.instructions()},
          {"peak_flops", peaks.peak()},
          {"read_bandwidth", json::object{{"128 KiB", peaks.bandwidth(131072)},
                                          {"4 MiB", peaks.bandwidth(4194304)},
                                          {"64 MiB", peaks.bandwidth(67108864)}}},
          {"random_samples", subject.random},
          {"functionals", std::move(functionals)},
          {"operations", std::move(operations)},
          {"steps", std::move(steps)}};
}

// Measures a step including reading and joining streams. Returns the best of several short runs, because a mean would
// include other load on the machine.
double time_in_flow(BoundGraph& graph, const Options& options, const PreparedSettings& s, double step) {
  for (int n : graph.graph().producers_used(s.cycle, s.trains))
    if (graph.streams().source(n).info().live) return -1;
  RunSettings run = options.run;
  run.batch = s.batch;
  run.threads = s.threads;
  run.epochs = std::nullopt;
  run.steps = std::clamp(static_cast<int64_t>(0.05 / step), int64_t{5}, int64_t{20000});
  double best = -1;
  for (int i = 0; i < 10; ++i) {
    const CycleReport report = CycleRuntime(graph, s.cycle, run).run();
    const double mean = report.seconds / static_cast<double>(std::max<int64_t>(1, report.steps));
    best = best < 0 ? mean : std::min(best, mean);
  }
  return best;
}

void write_trace(const Profile& p, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  out << trace_json(p) << '\n';
  out.close();
  if (!out) throw Error(ErrorKind::Output, fmt::format("'{}' cannot be written", path));
}

}  // namespace

int profile_command(const Options& options) {
  expect_ending("--trace", options.trace, {".json"}, "events as JSON");
  const std::string file = options.files.empty() ? "" : options.files.front();
  if (is_ndsl(file) || is_model(file, Registry::global()))
    throw Error(ErrorKind::Usage, fmt::format("'{}' is a model, and profile takes flows", file), {},
                {fmt::format("harmonics bench {} measures its rates", file),
                 fmt::format("to time its operations, write a flow that takes it as model(\"{}\")", file)});
  const Flow flow = read_flow(options);
  return with_source(flow.source, [&] {
    std::unique_ptr<BoundGraph> graph = open_graph(flow, options, options.inference);
    const int cycle = cycle_of(*graph, options);
    const int threads = options.run.threads > 0 ? options.run.threads : all_threads();
    const PreparedSettings settings =
        prepared_settings(*graph, options, graph->settings(cycle, options.run).batch, threads);
    const Rows rows(*graph, cycle, settings.trains, static_cast<uint64_t>(settings.batch), settings.seed);
    Subject subject{.graph = graph->graph().name, .settings = settings, .random = !rows.streamed()};
    if (subject.random) print_note("some producers are not bound: their samples are random numbers");
    const std::unique_ptr<MachinePeaks> peaks = peaks_of(settings);
    Profile profiled;
    {
      PreparedStep step(*graph, rows, settings);
      subject.memory = step.executable().memory();
      profiled = profile(step, *peaks,
                         {.runs = static_cast<uint64_t>(options.run.steps.value_or(0)),
                          .traced = options.trace.empty() ? 0 : kTraced,
                          .allocations = kCountsAllocations ? allocations_made : nullptr});
    }
    if (rows.streamed()) subject.in_flow = time_in_flow(*graph, options, settings, profiled.seconds);
    if (!options.trace.empty()) write_trace(profiled, options.trace);
    if (!options.quiet) print_profile(subject, profiled, *peaks);
    if (!options.quiet && !options.trace.empty()) say("trace: " + options.trace);
    if (options.json) print_json(json_of(subject, profiled, *peaks));
    return kDone;
  });
}

}  // namespace harmonics::engine::cli
