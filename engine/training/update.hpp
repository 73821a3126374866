// The update phase of a training step: clips gradients and updates parameters, or accumulates gradients over
// micro-batches for a later update.
#pragma once

#include <string>
#include <vector>

#include "engine/model/parameter_store.hpp"
#include "engine/program/tracer.hpp"
#include "engine/training/optimizer.hpp"

namespace harmonics::engine {

struct UpdateSettings {
  Optimizer optimizer;
  double clip = 0;        // clip by global norm; 0: off
  double clip_value = 0;  // clip each element by value, before the norm; 0: off
};

struct TrainedParameter {
  std::string name;
  bool hidden = true;  // see update_rule
};

// Updates every parameter from its gradient. Inputs: "@lr" f32, and "@step" i64 if a rule counts steps; states:
// "optimizer.MOMENT.NAME", initially zero. `scale`: factor for all gradients; empty: 1.
void trace_updates(Tracer& tracer, ParameterStore& store, const UpdateSettings& settings,
                   const std::vector<TrainedParameter>& parameters, std::vector<HTensor> gradients,
                   const HTensor& scale = {});

// "optimizer.gradient.NAME" becomes its old value, if the input "@keep" (bool) is set, plus `weight` times the
// gradient. `gradients`: one list per part of the loss; those of the second part go to "optimizer.gradient.NAME:1".
void trace_accumulation(Tracer& tracer, ParameterStore& store, const std::vector<TrainedParameter>& parameters,
                        const std::vector<std::vector<HTensor>>& gradients, double weight);

// A program that updates from accumulated gradients of `parts` parts of the loss, times the inputs "@scale" f32,
// "@scale:1" ...
Program accumulated_update(const std::string& name, ParameterStore& store, const UpdateSettings& settings,
                           const std::vector<TrainedParameter>& parameters, size_t parts = 1);

// Is it the state that accumulates a parameter's gradients?
bool is_accumulator(const std::string& name);

}  // namespace harmonics::engine
