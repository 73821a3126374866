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

// The global norm of the gradients of a step, before it is clipped: an output f32 [].
inline constexpr const char* kGradientNorm = "gradient_norm";

struct UpdateSettings {
  Optimizer optimizer;
  double clip = 0;        // clip by global norm; 0: off
  double clip_value = 0;  // clip each element by value, before the norm; 0: off
  // With `clip`: the norm that it clips by is the output kGradientNorm.
  bool shows_norm = false;
};

// Updates every parameter from its gradient. Step inputs: the rate, and the step if a rule counts steps; states:
// "optimizer.MOMENT.NAME", initially zero. `scale`: factor for all gradients; empty: 1.
void trace_updates(Tracer& tracer, ParameterStore& store, const UpdateSettings& settings,
                   const std::vector<TrainedParameter>& parameters, std::vector<HTensor> gradients,
                   const HTensor& scale = {});

// "optimizer.gradient.NAME" becomes its old value, if the step input `keep` is set, plus `weight` times the
// gradient. `gradients`: one list per part of the loss; those of the second part go to "optimizer.gradient.NAME:1".
void trace_accumulation(Tracer& tracer, ParameterStore& store, const std::vector<TrainedParameter>& parameters,
                        const std::vector<std::vector<HTensor>>& gradients, double weight);

// Returns a differentiated program with the gradients of these parameters replaced by their updates. `steps`: charged
// for every node; null: no budget.
Program update(Program differentiated, ParameterStore& store, const UpdateSettings& settings,
               const std::vector<TrainedParameter>& parameters, Budget* steps = nullptr);
// Likewise, with the gradients of `parts` parts of the loss accumulated; absent gradients are zeros.
Program accumulate(Program differentiated, ParameterStore& store, const std::vector<TrainedParameter>& parameters,
                   size_t parts, double weight, Budget* steps = nullptr);

// A program that updates from accumulated gradients of `parts` parts of the loss, each times its step input `scale`.
Program accumulated_update(const std::string& name, ParameterStore& store, const UpdateSettings& settings,
                           const std::vector<TrainedParameter>& parameters, size_t parts = 1);

// Is it the state that accumulates a parameter's gradients?
bool is_accumulator(const std::string& name);

}  // namespace harmonics::engine
