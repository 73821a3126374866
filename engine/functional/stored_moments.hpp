// Optimizer moments stored in 16 or 8 bits.
//
// Both formats use stochastic rounding: up or down with a probability proportional to the distance. With rounding to
// nearest a running mean that changes by a thousandth per step would never change. The random bits depend on the step
// number and the index of the element.
//
// 8 bits: each block of 16 x 16 elements of a matrix (the first axis by all others) shares a scale, so that blocks are
// still blocks after a transposition. A scale is the f32 exponent of the largest magnitude in the block, at least 16
// for means and 32 for squares. The code of a mean has a sign, 4 bits of the exponent counted down from the scale, and
// 3 bits of the fraction; the lowest magnitude stands for 0 with either sign. The code of a square has 5 and 3 bits and
// no zero, because its root is a divisor.
#pragma once

#include <harmonics/ops.hpp>

#include "engine/functional/reference.hpp"
#include "engine/tensor/moment_scales.hpp"

namespace harmonics::engine::reference {

// The kind of a moment: a running mean of either sign, or a mean of squares.
enum class MomentKind { mean, square };

// Returns the moment in f32. `scale` is empty unless it is stored in 8 bits.
HTensor read_moment(MomentKind kind, const HTensor& stored, const HTensor& scale);

struct StoredMoment {
  HTensor elements, scale;  // scale: empty for 16 bits
};
// Stores a moment as bf16, or as U8 with scales.
StoredMoment store_moment(MomentKind kind, const HTensor& moment, const HTensor& step, DType type);

}  // namespace harmonics::engine::reference
