// Lowers a model entry to the program of one step. Training steps also contain gradients and updates.
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
      device;  // train: the step's device, which determines the implementation of each call and of its gradient
  Chooser* chooser = nullptr;  // selects implementations; set by BoundGraph::lower
  Mode mode = Mode::train;
  int64_t batch = 1;
  int64_t tokens = 1;          // see EntrySizes
  double accumulate = 0;       // train: if above 0, gradients are scaled by this and accumulated, without an update
  bool by_count = true;        // with `accumulate`: separate gradients per part of the loss, weighted by its count
  bool observe = false;        // keep the entry's outputs for observers: "value:LAYER"
  bool operations = false;     // with `observe`: also those of EntrySizes::operations
  bool metric_inputs = false;  // see EntrySizes
  bool sample_losses = false;
};

struct Lowered : EntryResults {  // `plugins`: only with StepOptions::observe
  Program program;
  std::vector<int64_t> index_limits;  // by input: number of classes or symbols that its values index; 0: not indices
  std::vector<Selected> opened;       // calls replaced by their differentiated bodies
  std::vector<TrainedParameter> trained;  // parameters this program has gradients for
};

// Traces the entry "forward" for inference, otherwise "loss", or "forward" if the model has no loss. In training, also
// differentiates it, adds updates or gradient accumulation, and declares the optimizer's moments.
Lowered lower(const Model& model, const StepOptions& options);

}  // namespace harmonics::engine
