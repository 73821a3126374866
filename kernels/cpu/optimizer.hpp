// One optimizer step of one parameter.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

struct Bf16Routines;
struct HalfRoutines;
struct SparseContext;

// Storage of moments (engine/functional/stored_moments.hpp). coded: 8 bits; the scales are inputs after the moments.
enum class MomentType { f32, bf16, coded };

// SGD, Adam, AdamW, Lion.
struct OptimizerContext {
  int64_t count;
  uint32_t parts;
  bool nesterov, has_velocity, decoupled;
  bool counts_steps, wide_step;  // has the step number as an input, i64 if wide_step, else i32
  MomentType moments;
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

// The same for a batch: the update is the epilogue of each tile of the gradient a^T b. Phases: pack b; multiply and
// update; or, with few non-zeros in a, sparse rows of the gradient and their update.
struct ProductUpdateContext {
  OptimizerContext rule;
  UpdateKind kind;
  int64_t rows, columns, depth;  // depth: samples
  uint32_t pack_parts, parts;
  uint32_t packed;  // buffer of the packed b
  // Not null: operands are rounded to bf16 or fp16, and the buffer begins with the packed a, of `packed_a` bytes.
  const Bf16Routines* bf16 = nullptr;
  const HalfRoutines* half = nullptr;
  int64_t packed_a = 0;
  // Of phase 2: the non-zeros of a, in the buffer after the packed b, and the rows of a part's block in `packed`.
  const SparseContext* marks = nullptr;
  int64_t block_rows = 0;
};
// A larger depth in f32 takes several blocks, whose partial sums would have to be stored.
constexpr int64_t kMostUpdateDepth = 256;
// A larger depth in fp16 is packed faster block by block, during the product.
constexpr int64_t kMostHalfUpdateDepth = 1024;
constexpr int64_t kBf16TileRows = 32, kHalfTileRows = 48;  // rows per tile of a gradient with rounded operands

}  // namespace harmonics::cpu
