// One optimizer step of one parameter.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

struct OptimizerContext {
  int64_t count;
  uint32_t parts;
  bool nesterov, has_velocity, decoupled, wide_step;  // wide_step: the step number is i64, else i32
  double momentum, beta1, beta2, epsilon, weight_decay;
};

}  // namespace harmonics::cpu
