// The end of a training step: gradients are clipped and every parameter is stepped; or they are gathered over several
// micro-batches, and stepped from later.
#pragma once

#include <string>
#include <vector>

#include "engine/model/parameter_store.hpp"
#include "engine/program/tracer.hpp"
#include "engine/training/optimizer.hpp"

namespace harmonics {

struct UpdateSettings {
  Optimizer optimizer;
  double clip = 0;        // largest length of all gradients together; 0: as they are
  double clip_value = 0;  // largest magnitude of one number of a gradient, before that; 0: as they are
};

struct TrainedParameter {
  std::string name;
  bool hidden = true;  // see update_rule
};

// One step of every parameter from its gradient. Inputs: "@lr" f32, and "@step" i64 where a rule counts; states:
// "optimizer.MOMENT.NAME", zero at first. An empty `scale` is 1, else all gradients are multiplied by that number first.
void trace_updates(Tracer& tracer, ParameterStore& store, const UpdateSettings& settings,
                   const std::vector<TrainedParameter>& parameters, std::vector<HTensor> gradients, const HTensor& scale = {});

// "optimizer.gradient.NAME" becomes itself + `weight` times the gradient where the input "@keep" (bool) holds, else
// that without itself. `gradients`: of each part of the loss; those of the second are gathered in
// "optimizer.gradient.NAME:1".
void trace_accumulation(Tracer& tracer, ParameterStore& store, const std::vector<TrainedParameter>& parameters,
                        const std::vector<std::vector<HTensor>>& gradients, double weight);

// A program that steps from what was gathered of so many parts, times the inputs "@scale" f32, "@scale:1" ...
Program accumulated_update(const std::string& name, ParameterStore& store, const UpdateSettings& settings,
                           const std::vector<TrainedParameter>& parameters, size_t parts = 1);

// Does this parameter gather the gradients of a step's batches?
bool is_accumulator(const std::string& name);

}  // namespace harmonics
