// RecordState: the counts and measurements of a cycle at the end of a step, as stored in a checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <boost/json/fwd.hpp>

#include "engine/flow/layer_metrics.hpp"
#include "engine/flow/metrics.hpp"
#include "engine/measure/curve.hpp"
#include "engine/measure/cycle_report.hpp"
#include "engine/model/safetensors.hpp"

namespace harmonics::engine {

class Fields;

// Means, sums and counts of a CycleRecord, and the accumulated state of its metrics in the epoch.
struct RecordState {
  int64_t epoch_steps = 0, epoch_samples = 0;
  double epoch_measured = 0, epoch_correct = 0, epoch_judged = 0, epoch_start = 0;
  std::map<std::string, StepSums> epoch_loss;     // by part, as in Metrics::part
  std::map<std::string, StepSums> epoch_figures;  // figures reported by losses
  double aside = 0;                               // seconds excluded from the rates
  std::string accuracy_metric;                    // the one shown on the progress line; empty: none yet
  std::map<std::string, WindowState> windows;
  std::map<std::string, double> held;  // metrics that keep their value until the next epoch or validation
  CurveState curve;
  std::vector<EpochReport> by_epoch;  // as in EpochHistory, with its counts
  int64_t closed_epochs = 0, epoch_stride = 1;
  std::vector<LayerState> measured_layers;
  std::map<std::string, MetricWindowState> judged_windows;  // by layer: the samples of its window metrics
};

// Returns the state as JSON. Stores arrays of variable length as tensors of the file, named "run/...".
boost::json::object json_of(const RecordState& record, TensorFile& file);
// Restores the state and removes its tensors from the file. Throws std::exception for missing or invalid data.
RecordState take_record(const Fields& fields, int64_t version, TensorFile& file);

}  // namespace harmonics::engine
