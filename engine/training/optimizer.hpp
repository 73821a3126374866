// Optimizers as a flow or a flag names them: 'adamw', 'sgd(lr=0.1, momentum=0.9)'.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/program/attributes.hpp"

namespace harmonics {

struct OptimizerRow {
  std::string_view name;        // also the functional that updates one parameter
  std::string_view description;
  std::vector<std::string> moments;                              // state tensors per parameter, same shape
  std::vector<std::pair<std::string, double>> settings;          // with defaults; "lr" apart
  double lr;
  bool counts_steps;            // takes the step number (bias correction)
};
const std::vector<OptimizerRow>& optimizer_rows();

struct Optimizer {
  const OptimizerRow* row;
  double lr;
  bool lr_given = false;
  AttributeMap attributes;      // of the functional
  double weight_decay = 0;      // on tensors of two and more dimensions only
  std::vector<std::string> moments;  // those this setting needs (plain SGD keeps none)
  std::string str() const;      // "adamw(lr=0.001, beta1=0.9, ...)"
};

// Unknown optimizers and settings: ErrorKind::Name with the nearest; bad values: ErrorKind::Type.
Optimizer parse_optimizer(std::string_view text);

}  // namespace harmonics
