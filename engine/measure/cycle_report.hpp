// What a run of a cycle reports: while it goes, after each epoch and step, and at its end.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/measure/evaluate.hpp"

namespace harmonics {

struct Progress {
  int64_t epoch = 0;   // being run, from 0
  int64_t epochs = 0;  // planned; 0: open
  int64_t step = 0, samples = 0;
  double seconds = 0, samples_per_second = 0;
  double fraction = -1;            // of the whole run; -1: open
  double loss = 0, accuracy = -1;  // means over the last 100 steps; accuracy -1: none
  int64_t window = 0;              // samples that were predicted before they were learned; 0: none
  double window_loss = 0, window_accuracy = -1;
};

struct EpochReport {
  int64_t epoch, steps, samples;
  double seconds, loss, accuracy;              // means over the epoch
  double learning_rate;                        // of its last step
  int64_t step = 0;                            // of the run, when it ended
  std::string accuracy_name = {};              // "output.accuracy"
  std::map<std::string, double> figures = {};  // what --metric asked for, over the epoch: "f1", "output.f1"
  std::optional<Evaluation> validation = std::nullopt;
  double waited = 0;  // seconds of this process in which the next batch was not read yet
};

// For logs: every so many steps.
struct StepReport {
  int64_t epoch = 0, step = 0, samples = 0;  // epoch from 1
  double seconds = 0, samples_per_second = 0, learning_rate = 0;
  std::map<std::string, double> metrics;
};

// What a run had behind it when it began; nothing unless it was resumed.
struct Beginning {
  int64_t step = 0, epochs = 0;  // epochs that are over, reported and all
};

struct CurvePoint {
  int64_t step;
  double seconds, loss, accuracy;
};

// What happened to a run besides its steps.
struct RunEvent {
  std::string kind, text;       // "learning_rate", "pause", "resume", "checkpoint"; for people
  int64_t epoch = 0, step = 0;  // epoch from 1; after that step
  double seconds = 0;
};

struct CycleReport {
  int64_t epochs = 0, steps = 0, samples = 0;
  double seconds = 0, samples_per_second = 0;
  double loss = 0, accuracy = -1;  // last 100 steps; last epoch
  double learning_rate = 0;        // of the last step
  double waited = 0;               // the share of its time in this process in which the next batch was not read yet
  std::map<std::string, double> metrics;
  std::vector<EpochReport> by_epoch;  // at most 1,024: of longer runs every second one, every fourth, …, and the last
  std::vector<CurvePoint> curve;      // at most 512 points
  // "epochs", "steps", "for", "until loss < 0.05", "interrupt", "end of streams"; of a run that failed: "not finite",
  // "error"
  std::string stopped_by;
  int64_t resumed_at = 0;                         // the step of the checkpoint it went on from
  std::vector<LeftOver> left_over;                // of its streams, by the last pass; the notes say it too
  std::map<std::string, uint64_t> lost;           // samples of live streams that no sender has any more, by producer
  std::set<std::string> used, trained;            // parameters of its programs; those of them that its steps change
  std::vector<RunEvent> events;                   // the last 256 of this process
  std::map<std::string, uint64_t> refused;        // those that could not be read, likewise
  std::map<std::string, std::string> last_error;  // what is known of them
  std::string no_checkpoint;  // why the last one could not be written; empty: it was, or none was asked for
  std::vector<std::string> notes;
};

}  // namespace harmonics
