// The update phase of a training step: clips gradients and updates parameters, or accumulates gradients over
// micro-batches for a later update.
#pragma once

#include <string>
#include <vector>

#include "engine/model/parameter_store.hpp"
#include "engine/program/tracer.hpp"
#include "engine/training/differentiate.hpp"
#include "engine/training/optimizer.hpp"

namespace harmonics::engine {

// Output f32 []: global norm of a step's gradients before clipping.
inline constexpr const char* kGradientNorm = "gradient_norm";

struct UpdateSettings {
  Optimizer optimizer;
  double clip = 0;        // clip by global norm; 0: off
  double clip_value = 0;  // clip each element by value, before the norm; 0: off
  // With `clip`: adds the output kGradientNorm.
  bool shows_norm = false;
};

// Traces the update of every parameter from its gradient. Step inputs: the learning rate, and the step number if a rule
// counts steps. States: "optimizer.MOMENT.NAME", initially zero. `scale`: factor for all gradients; empty: 1.
void trace_updates(Tracer& tracer, ParameterStore& store, const UpdateSettings& settings,
                   const std::vector<TrainedParameter>& parameters, std::vector<HTensor> gradients,
                   const HTensor& scale = {});

// Traces gradient accumulation: adds `weight` times the gradient to the state "optimizer.gradient.NAME", which is
// zeroed first unless the step input `keep` is set. `gradients`: one list per part of the loss; the second part uses
// "optimizer.gradient.NAME:1".
void trace_accumulation(Tracer& tracer, ParameterStore& store, const std::vector<TrainedParameter>& parameters,
                        const std::vector<std::vector<HTensor>>& gradients, double weight);

// Replaces the gradient outputs of a differentiated program by updates of these parameters. `steps`: charged for every
// node; null: no budget.
Program update(Program differentiated, ParameterStore& store, const UpdateSettings& settings,
               const std::vector<TrainedParameter>& parameters, Budget* steps = nullptr);
// Replaces them by gradient accumulation for `parts` parts of the loss; absent gradients are zeros.
Program accumulate(Program differentiated, ParameterStore& store, const std::vector<TrainedParameter>& parameters,
                   size_t parts, double weight, Budget* steps = nullptr);

// Returns a program that updates from accumulated gradients: the sum over the parts of the loss, each multiplied by its
// step input `scale`.
Program accumulated_update(const std::string& name, ParameterStore& store, const UpdateSettings& settings,
                           const std::vector<TrainedParameter>& parameters, size_t parts = 1);

// Returns whether the state accumulates a parameter's gradients.
bool is_accumulator(const std::string& name);

}  // namespace harmonics::engine
