// harmonics bench: measures samples per second of a flow, by batch size and threads, or tokens per second of a language
// model.
#include <chrono>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/bound/profile.hpp"
#include "engine/execution/device_peaks.hpp"
#include "engine/cli/commands/bench_model.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/model/imported.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/run/prepared.hpp"
#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

struct Measured {
  bool trains;
  int64_t batch;
  int threads;
  uint64_t steps;
  double best, median, floor;  // seconds per step

  double samples(double seconds) const { return static_cast<double>(batch) / seconds; }
};

Measured measure(BoundGraph& graph, const Rows& rows, const PreparedSettings& settings, MachinePeaks& peaks,
                 double seconds) {
  using Clock = std::chrono::steady_clock;
  PreparedStep step(graph, rows, settings);
  for (int i = 0; i < 3; ++i) step.run();
  floor_of(step.executable(), peaks);  // measures the machine before and after the run, and keeps the better values
  Times times;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  do {
    const auto start = Clock::now();
    const size_t batch_number = step.run();
    times.add(std::chrono::duration<double>(Clock::now() - start).count(), batch_number);
  } while (Clock::now() < end || times.count() < 5);
  peaks.again();
  return {settings.trains,
          settings.batch,
          settings.threads,
          times.count(),
          times.best(),
          times.at(0.5),
          floor_of(step.executable(), peaks)};
}

void print_head(const std::string& device) {
  if (device != "cpu") print("on device {}, by the wall clock around a wait for each step\n", device);
  print("{:<10} {:>7} {:>8} {:>12} {:>12} {:>14} {:>9}\n", "mode", "batch", "threads", "samples/s", "median",
        "us a step", "of floor");
}

void print_row(const Measured& m) {
  print("{:<10} {:>7} {:>8} {:>12} {:>12} {:>14.2f} {:>9.2f}\n", m.trains ? "training" : "inference", m.batch,
        m.threads, thousands(static_cast<int64_t>(m.samples(m.best))),
        thousands(static_cast<int64_t>(m.samples(m.median))), m.best * 1e6, m.floor / m.best);
  flush_output();
}

json::object json_of(const Measured& m) {
  return {{"mode", m.trains ? "train" : "infer"},
          {"batch", m.batch},
          {"threads", m.threads},
          {"steps", m.steps},
          {"samples_per_second", m.samples(m.best)},
          {"median_samples_per_second", m.samples(m.median)},
          {"seconds", m.best},
          {"median", m.median},
          {"floor", m.floor},
          {"of_floor", m.floor / m.best}};
}

class Bench {
 public:
  Bench(const Flow& flow, const Options& options) : flow_(flow), options_(options), threads_(options.threads) {
    if (threads_.empty()) threads_.push_back(1);
    if (options.threads.empty() && all_threads() > 1) threads_.push_back(all_threads());
  }

  // Measures training, unless only inference was requested, then inference.
  void run() {
    if (!options_.inference) measure_all(false);
    measure_all(true);
  }
  json::object result() const {
    return {{"version", 1},
            {"graph", name_},
            {"random_samples", random_},
            {"device", options_.run.device},
            {"instructions", instructions_},
            {"rows", rows_}};
  }

 private:
  void measure_all(bool inference) {
    const std::unique_ptr<BoundGraph> graph = open_graph(flow_, options_, inference);
    const int cycle = cycle_of(*graph, options_);
    if (!inference && !graph->graph().trains(cycle)) return;
    name_ = graph->graph().name;
    const auto most = static_cast<uint64_t>(*std::max_element(options_.batches.begin(), options_.batches.end()));
    const Rows rows(*graph, cycle, !inference, most, static_cast<uint64_t>(options_.run.seed.value_or(0)));
    if (!rows.streamed() && !random_) print_note("some producers are not bound: their samples are random numbers");
    random_ = random_ || !rows.streamed();
    for (int64_t batch : options_.batches)
      for (int threads : threads_) {
        const PreparedSettings settings = prepared_settings(*graph, options_, batch, threads);
        std::unique_ptr<MachinePeaks>& peaks = peaks_[threads];
        if (!peaks) peaks = peaks_of(settings);
        if (options_.run.device == "cpu") spread_over_cores(threads, kMostSpread);
        instructions_ = peaks->instructions();
        const Measured m = measure(*graph, rows, settings, *peaks, options_.seconds);
        if (!options_.quiet && rows_.empty()) print_head(options_.run.device);
        if (!options_.quiet) print_row(m);
        rows_.push_back(json_of(m));
      }
  }

  const Flow& flow_;
  const Options& options_;
  std::vector<int> threads_;
  std::map<int, std::unique_ptr<MachinePeaks>> peaks_;  // by threads
  std::string name_, instructions_;
  bool random_ = false;
  json::array rows_;
};

}  // namespace

int bench_command(const Options& options) {
  const std::string& file = options.files.front();
  if (is_ndsl(file) || is_model(file, Registry::global())) return bench_model(options);
  refuse_flags(options, {"prefill", "decode", "texts", "repeat", "weight-type", "cache-type", "spec", "set", "lora"},
               "a flow");
  const Flow flow = read_flow(options);
  return with_source(flow.source, [&] {
    Bench bench(flow, options);
    bench.run();
    if (options.json) print_json(bench.result());
    return kDone;
  });
}

}  // namespace harmonics::engine::cli
