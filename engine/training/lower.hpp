// Lowers a model to the program of one step: an entry as it is, or differentiated and updated.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/execution/executable.hpp"
#include "engine/model/model.hpp"
#include "engine/training/update.hpp"

namespace harmonics::engine {

enum class Mode { train, evaluate, infer };

struct StepOptions : UpdateSettings {  // UpdateSettings: train only
  DeviceSettings
      device;  // train: the step's device, which decides which device or library computes a call and its gradient
  Chooser* chooser = nullptr;  // decides it; set by BoundGraph::lower
  Mode mode = Mode::train;
  int64_t batch = 1;
  int64_t tokens = 1;          // see EntrySizes
  double accumulate = 0;       // train: if above 0, gradients are scaled by this and accumulated, without an update
  bool by_count = true;        // with `accumulate`: parts of the loss separately, each times its counted share
  bool observe = false;        // keep what the entry offers to observers: "value:LAYER"
  bool operations = false;     // with `observe`: those of EntrySizes::operations, too
  bool metric_inputs = false;  // as of EntrySizes
  bool sample_losses = false;
};

struct Lowered : EntryResults {  // `plugins`: only with StepOptions::observe
  Program program;
  std::vector<int64_t>
      index_limits;              // by input: number of classes or symbols its numbers index; 0: they are not indices
  std::vector<Selected> opened;  // calls replaced by their differentiated bodies
  std::vector<TrainedParameter> trained;  // parameters this program has gradients for
};

// Traces the entry "forward" to infer, else "loss"; a model without it, such as a flow without taps, has "forward" for
// that too. In training, differentiates it, then updates from the gradients or accumulates them. Declares moments.
Lowered lower(const Model& model, const StepOptions& options);

}  // namespace harmonics::engine
