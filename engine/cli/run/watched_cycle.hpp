// The output of a running cycle: the progress line, a line per epoch, logs, texts of a language model.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/cli/options/options.hpp"
#include "engine/cli/run/epoch_lines.hpp"
#include "engine/cli/run/run_log.hpp"
#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

class WatchedCycle {
 public:
  // Throws ErrorKind::Output for logs that cannot be written. `graph` and `options` must outlive the object.
  WatchedCycle(BoundGraph& graph, const Options& options, int cycle, bool trains);
  WatchedCycle(const WatchedCycle&) = delete;
  WatchedCycle& operator=(const WatchedCycle&) = delete;

  // Sets the runtime's callbacks; the object must outlive the run. `starting` is called before the first step.
  void attach(CycleRuntime& runtime, std::function<void()> starting);
  // Ends the progress line and the logs.
  void end();
  RunRates rates_of(const CycleReport& report) {
    return meter_.at(report.samples_per_second, report.products, report.seconds);
  }

 private:
  void note(const std::string& text);
  void write(const LogRow& row);
  void show(const Progress& progress);
  void close_epoch(const EpochReport& epoch, const Progress& progress);
  void log_epoch(const EpochReport& epoch, const Progress& progress);
  void sample(const StepReport& step);

  BoundGraph& graph_;
  const Options& options_;
  const int cycle_;
  const bool trains_;
  ProgressLine line_;
  EpochLines epochs_;
  RateMeter meter_;
  std::vector<std::unique_ptr<RunLog>> logs_;
  bool samples_ = true;  // false: a text could not be sampled
};

}  // namespace harmonics::engine::cli
