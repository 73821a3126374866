// One optimizer step of one parameter.
#pragma once

#include <cstdint>

#ifndef HM_ISA
#include "site.hpp"
#endif

namespace harmonics::cpu {

// Storage of moments (engine/functional/stored_moments.hpp). coded: 8 bits; the scales are inputs after the moments.
enum class MomentType { f32, bf16, coded };

// SGD, Adam, AdamW, Lion.
struct OptimizerContext {
  int64_t count;
  uint32_t parts;
  bool nesterov, has_velocity, decoupled;
  bool counts_steps, wide_step;  // has the step number as an input, i64 if wide_step, else i32
  MomentType moments;
  bool between;  // updates_between_products()
  int64_t rows;  // coded: rows of the matrix whose blocks have scales
  double momentum, beta1, beta2, epsilon, weight_decay;
};

enum class UpdateKind { sgd, adam, lion };

// The step of an affine map's weight for a single sample: the gradient a b^T is computed and used in registers.
// `gradient`: also computes the gradient of a, from the old w; `active`: zero where a <= 0.
struct OuterUpdateContext {
  OptimizerContext rule;
  UpdateKind kind;
  int64_t rows, columns;  // of w
  uint32_t parts;
  bool gradient, active;
};

#ifndef HM_ISA

constexpr int64_t kMomentBlock = 16;  // rows and columns that share a scale

double nanoseconds_of(const OptimizerContext& c);
// Plans the step of a weight for a batch of `samples` (families/update_product.cpp).
bool plan_batch_update(const Site& site, const OuterUpdateContext& one, int64_t samples, hx_kernel& out);

#endif

}  // namespace harmonics::cpu
