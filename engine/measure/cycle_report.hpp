// Reports of a cycle's run: its progress, one report per epoch and per interval of steps, and the final report.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/measure/evaluate.hpp"

namespace harmonics::engine {

struct Progress {
  int64_t epoch = 0;   // current epoch, from 0
  int64_t epochs = 0;  // planned epochs; 0: unlimited
  int64_t step = 0, samples = 0;
  double seconds = 0, samples_per_second = 0;
  double fraction = -1;            // completed part of the whole run; -1: unlimited
  double loss = 0, accuracy = -1;  // means over the last 100 steps; accuracy -1: none
  int64_t window = 0;              // samples in the test-then-train window; 0: none
  double window_loss = 0, window_accuracy = -1;
  double products = 0;        // FLOP of matrix products per sample; 0: none
  double gradient_norm = -1;  // global norm of the last step's gradients, before clipping; -1: none
};

struct EpochReport {
  int64_t epoch, steps, samples;
  double seconds, loss, accuracy;              // means over the epoch
  double learning_rate;                        // of its last step
  int64_t step = 0;                            // step of the run at its end
  std::string accuracy_name = {};              // "output.accuracy"
  std::map<std::string, double> figures = {};  // metrics requested with --metric, over the epoch: "f1", "output.f1"
  std::optional<Evaluation> validation = std::nullopt;
  double waited = 0;  // seconds spent waiting for batches in this process
};

// A report for logs, emitted at a fixed interval of steps.
struct StepReport {
  int64_t epoch = 0, step = 0, samples = 0;  // epoch from 1
  double seconds = 0, samples_per_second = 0, learning_rate = 0;
  std::map<std::string, double> metrics;  // means over the steps since the previous report, at most the last 100
  double products = 0;                    // as in Progress
};

// Progress before the start of this process; zero unless the run is resumed.
struct Beginning {
  int64_t step = 0, epochs = 0;  // completed epochs
};

struct CurvePoint {
  int64_t step;
  double seconds, loss, accuracy;
};

// An event of a run other than a step.
struct RunEvent {
  std::string kind, text;       // "learning_rate", "pause", "resume", "checkpoint", "returned", "layer"; a message
  int64_t epoch = 0, step = 0;  // epoch from 1; the event follows this step
  double seconds = 0;
  int64_t samples = 0;
  double samples_per_second = 0, learning_rate = 0;  // learning rate of the next step
};

struct CycleReport {
  int64_t epochs = 0, steps = 0, samples = 0;
  double seconds = 0, samples_per_second = 0;
  double loss = 0, accuracy = -1;  // of the last 100 steps; of the last epoch
  double learning_rate = 0;        // of the last step
  double waited = 0;               // fraction of the time in this process spent waiting for batches
  double products = 0;             // as in Progress
  std::map<std::string, double> metrics;
  std::vector<EpochReport> by_epoch;  // at most 1,024; see EpochHistory
  std::vector<CurvePoint> curve;      // at most 512 points
  // "epochs", "steps", "for", "until loss < 0.05", "interrupt", "end of streams"; "not finite" or "error" for a failed
  // run.
  std::string stopped_by;
  int64_t resumed_at = 0;                            // step of the checkpoint from which the run resumed
  std::vector<LeftOver> left_over;                   // remainders of streams after the last pass; also in the notes
  std::map<std::string, uint64_t> lost;              // samples of live streams that no sender can resend; by producer
  std::set<std::string> used, trained;               // parameters of its programs; those that its steps change
  std::vector<RunEvent> events;                      // the last 256 of this process
  int64_t skipped = 0;                               // batches skipped by the loss guard in this process
  std::map<std::string, uint64_t> refused;           // samples that could not be read; by producer
  std::map<std::string, std::string> last_error;     // last error, by producer
  std::string precision = "fp32", precision_reason;  // of matrix products; why `auto` chose it, or empty
  std::string no_checkpoint;  // why the last checkpoint could not be written; empty: written or not requested
  std::vector<std::string> notes;
};

}  // namespace harmonics::engine
