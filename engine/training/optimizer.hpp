// Optimizers as a flow or a flag names them: 'adamw', 'sgd(lr=0.1, momentum=0.9)'; and how each steps one parameter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/program/attributes.hpp"
#include "engine/tensor/type.hpp"
#include "engine/training/named_settings.hpp"

namespace harmonics {

// One row each; "lr" is the first setting.
const std::vector<NamedRow>& optimizer_rows();

struct Optimizer {
  NamedSettings settings;
  double lr = 0;
  std::string str() const;  // "adamw(lr=0.001, beta1=0.9, ...)"
};

// "adamw(lr=1e-3)". Errors as parse_named_settings has them.
Optimizer parse_optimizer(std::string_view text, Registry& registry = Registry::global());

// How one parameter is stepped: functional(w, g, moments..., lr[, step]) -> w', moments'...
struct UpdateRule {
  struct Moment {
    std::string name;  // "m", "v", ...
    TensorType type;
  };
  std::string functional;
  AttributeMap attributes;
  std::vector<Moment> moments;
  bool counts_steps = false;  // takes the step number (bias correction)
};

// Not for a plugin's optimizer; see plugin_optimizer.hpp. Weight decay and LAMB's trust ratio are for tensors of two and more axes. `hidden`: neither a table that is looked up nor
// of an arrow into a tapped layer; NorMuon orthogonalises hidden matrices and steps everything else by AdamW.
UpdateRule update_rule(const Optimizer& optimizer, const TensorType& parameter, bool hidden);

}  // namespace harmonics
