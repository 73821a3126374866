// One optimizer step of one parameter.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

struct Bf16Routines;

// Moments may be stored in fewer bits (engine/functional/stored_moments.hpp). coded: 8 bits, whose scales follow the
// moments.
enum class MomentType { f32, bf16, coded };

// SGD, Adam, AdamW, Lion.
struct OptimizerContext {
  int64_t count;
  uint32_t parts;
  bool nesterov, has_velocity, decoupled;
  bool counts_steps, wide_step;  // takes the step number, i64 if wide_step, else i32
  MomentType moments;
  int64_t rows;  // coded: of the matrix whose blocks have scales
  double momentum, beta1, beta2, epsilon, weight_decay;
};

enum class UpdateKind { sgd, adam, lion };

// The step of an affine map's weight for a single sample: its gradient a b^T is made and used in registers. `gradient`:
// also that of a, from the old w; `active`: only where a > 0, else zero.
struct OuterUpdateContext {
  OptimizerContext rule;
  UpdateKind kind;
  int64_t rows, columns;  // of w
  uint32_t parts;
  bool gradient, active;
};

// The same for a batch: tiles of the gradient a^T b are used where they are made. Phases: pack b, multiply and update.
struct ProductUpdateContext {
  OptimizerContext rule;
  UpdateKind kind;
  int64_t rows, columns, depth;  // depth: samples
  uint32_t pack_parts, parts;
  uint32_t packed;  // the buffer of b's packed form
  // Not null: operands are rounded to bf16; the buffer begins with a's packed form, of this many numbers.
  const Bf16Routines* bf16 = nullptr;
  int64_t packed_a = 0;
};
// Longer sums in f32 are computed in several blocks, whose sums would have to be stored.
constexpr int64_t kMostUpdateDepth = 256;
constexpr int64_t kRoundedRows = 32;  // of a tile of the gradient, in bf16

}  // namespace harmonics::cpu
