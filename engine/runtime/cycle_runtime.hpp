// CycleRuntime: runs one cycle of a graph. Samples are read and joined ahead of the step, which is one compiled plan; a oneTBB
// flow graph (input -> limiter -> step -> sinks) carries batches between the stages, every edge bounded.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/harmonic_graph.hpp"

namespace harmonics {

struct Progress {
  int64_t epoch = 0;  // being run, from 0
  int64_t epochs = 0; // planned; 0: open
  int64_t step = 0, samples = 0;
  double seconds = 0, samples_per_second = 0;
  double fraction = -1;  // of the whole run; -1: open
  double loss = 0, accuracy = -1;  // means over the last 100 steps; accuracy -1: none
};

struct EpochReport {
  int64_t epoch, steps, samples;
  double seconds, loss, accuracy;  // means over the epoch
  double learning_rate;            // of its last step
};

struct CurvePoint {
  int64_t step;
  double seconds, loss, accuracy;
};

struct CycleReport {
  int64_t epochs = 0, steps = 0, samples = 0;
  double seconds = 0, samples_per_second = 0;
  double loss = 0, accuracy = -1;  // last 100 steps; last epoch
  double learning_rate = 0;        // of the last step
  std::map<std::string, double> metrics;
  std::vector<EpochReport> by_epoch;
  std::vector<CurvePoint> curve;   // at most 512 points
  std::string stopped_by;          // "epochs", "steps", "for", "until loss < 0.05", "interrupt", "end of streams"
  std::vector<std::string> notes;
};

struct Evaluation {
  int64_t samples = 0;
  double loss = 0, accuracy = -1;  // mean per sample (position)
  double seconds = 0;
};

class CycleRuntime {
 public:
  CycleRuntime(HarmonicGraph& graph, int cycle, RunSettings settings);
  ~CycleRuntime();

  // Trains when the cycle has a tap, else infers and feeds the consumers. Errors of any stage come out here.
  CycleReport run();
  // From any thread or a signal handler: stops after the step that is running.
  void stop() { stop_.store(true, std::memory_order_relaxed); }
  void on_progress(std::function<void(const Progress&)> callback) { progress_ = std::move(callback); }
  void on_epoch(std::function<void(const EpochReport&)> callback) { epoch_ = std::move(callback); }

 private:
  friend class CycleRun;
  HarmonicGraph& graph_;
  int cycle_;
  RunSettings settings_;
  std::atomic<bool> stop_{false};
  std::function<void(const Progress&)> progress_;
  std::function<void(const EpochReport&)> epoch_;
};

// Loss and accuracy of a cycle's taps over one pass of `streams`, in evaluation mode.
Evaluation evaluate(HarmonicGraph& graph, int cycle, StreamSet& streams, const RunSettings& settings);

}  // namespace harmonics
