// Optimizers, written 'adamw' or 'sgd(lr=0.1, momentum=0.9)' in flows and options, and their update rules.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor/attributes.hpp"
#include "engine/tensor/type.hpp"
#include "engine/plugin/named_settings.hpp"

namespace harmonics::engine {

// Returns the library's optimizers; "lr" is the first setting of each.
const std::vector<NamedRow>& optimizer_rows();

struct Optimizer {
  NamedSettings settings;
  double lr = 0;
  std::string str() const;  // "adamw(lr=0.001, beta1=0.9, ...)"
};

// Parses "adamw(lr=1e-3)". Errors as in parse_named_settings().
Optimizer parse_optimizer(std::string_view text, Registry& registry = Registry::global());

// Update of one parameter: functional(w, g, moments..., lr[, step]) -> w', moments'...
struct UpdateRule {
  struct Moment {
    std::string name;  // "m", "v", ...
    TensorType type;
  };
  std::string functional;
  AttributeMap attributes;
  std::vector<Moment> moments;
  bool counts_steps = false;  // needs the step number, for bias correction or stochastic rounding of moments
};

// Returns the update rule of a library optimizer; plugin_optimizer.hpp handles those of plugins. Weight decay and
// LAMB's trust ratio apply only to tensors of rank 2 and more. `hidden`: false for lookup tables and for arrows into
// tapped layers; NorMuon orthogonalises hidden matrices and uses AdamW for all others.
UpdateRule update_rule(const Optimizer& optimizer, const TensorType& parameter, bool hidden);

}  // namespace harmonics::engine
