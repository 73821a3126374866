// Optimizer steps (RMSProp, LAMB) of one parameter, and the global norm of gradients.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

struct RmspropContext {
  int64_t count;
  uint32_t parts;
  bool has_velocity, centered;
  double alpha, epsilon, momentum, weight_decay;
};

// `adapt`: two phases: moments, and squared norms of w and of the update direction per part; then the update.
struct LambContext {
  int64_t count;
  uint32_t parts;
  bool adapt, wide_step;  // wide_step: the step number is i64, else i32
  double beta1, beta2, epsilon, weight_decay;
};

// Global norm. Phases: sums of squares of blocks of all tensors; square root of the total.
struct NormBlock {
  uint32_t tensor;
  int64_t begin, count;
};
struct GlobalNormContext {
  uint32_t parts, tensors;
  int64_t count;
  const NormBlock* blocks;
};

}  // namespace harmonics::cpu
