// Optimizers of plugins: their updates are traced into the training step.
#pragma once

#include <string>
#include <vector>

#include "engine/program/tracer.hpp"
#include "engine/training/optimizer.hpp"

namespace harmonics::engine {

struct SteppedParameter {
  std::string name;
  TensorType type;
  bool hidden = true;
};

// Returns the moments that the optimizer keeps for the parameter.
std::vector<UpdateRule::Moment> plugin_moments(const Optimizer& optimizer, const SteppedParameter& parameter);

// Traces one update. Returns the parameter's new value, followed by its new moments. `step`: i64.
std::vector<HTensor> plugin_step(const Optimizer& optimizer, const SteppedParameter& parameter, const HTensor& value,
                                 const HTensor& gradient, const std::vector<HTensor>& moments, const HTensor& rate,
                                 const HTensor& step);

}  // namespace harmonics::engine
