// One optimizer step of one parameter.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

// SGD, Adam, AdamW, Lion.
struct OptimizerContext {
  int64_t count;
  uint32_t parts;
  bool nesterov, has_velocity, decoupled;
  bool counts_steps, wide_step;  // wide_step: the step number is i64, else i32
  double momentum, beta1, beta2, epsilon, weight_decay;
};

// The step of an affine map's weight for a single sample: its gradient a b^T is made and used in registers. `gradient`:
// also that of a, from the old w; `active`: only where a > 0, else zero.
struct OuterUpdateContext {
  enum Kind { sgd, adam, lion };
  OptimizerContext rule;
  Kind kind;
  int64_t rows, columns;  // of w
  uint32_t parts;
  bool gradient, active;
};

}  // namespace harmonics::cpu
