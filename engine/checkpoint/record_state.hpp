// RecordState: what a cycle has counted and measured until a step's end, as it goes into a checkpoint and comes back.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <boost/json/fwd.hpp>

#include "engine/flow/judge.hpp"
#include "engine/flow/metrics.hpp"
#include "engine/measure/curve.hpp"
#include "engine/measure/cycle_report.hpp"
#include "engine/model/safetensors.hpp"

namespace harmonics {

class Fields;

// Means, sums and counts of a CycleRecord; what its metrics have gathered in the epoch.
struct RecordState {
  int64_t epoch_steps = 0, epoch_samples = 0;
  double epoch_measured = 0, epoch_correct = 0, epoch_judged = 0, epoch_start = 0;
  std::map<std::string, StepSums> epoch_loss;  // by part, as Metrics::part has them
  double aside = 0;                            // seconds that rates leave out
  std::string accuracy_metric;                 // whose value the progress line shows; empty: none yet
  std::map<std::string, WindowState> windows;
  std::map<std::string, double> held;  // values that hold until the next: of epochs and of validation
  CurveState curve;
  std::vector<EpochReport> by_epoch;  // as EpochHistory keeps them, with its counts
  int64_t closed_epochs = 0, epoch_stride = 1;
  std::vector<LayerState> judged;
  std::map<std::string, JudgedWindowState> judged_windows;  // by layer: over what its metrics are read
};

// Numbers of any length go into tensors of the file, called "run/...".
boost::json::object json_of(const RecordState& record, TensorFile& file);
// Takes these tensors out of the file. Throws std::exception when something is missing or cannot be.
RecordState take_record(const Fields& fields, int64_t version, TensorFile& file);

}  // namespace harmonics
