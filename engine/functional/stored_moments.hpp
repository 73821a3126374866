// Moments of an optimizer stored in 16 or 8 bits.
//
// Both are rounded up or down at random, in proportion to the distance. Otherwise a running mean that changes by a
// thousandth a step would stay where it is. The random bits depend on the step number and the element's place in
// memory.
//
// 8 bits: blocks of 16 x 16 elements of a matrix (of the first axis and all others) share a scale, so that blocks stay
// blocks in a transposed matrix. A scale is the exponent of the block's largest magnitude as in f32, at least 16
// (means) or 32 (squares). A mean has a sign, 4 bits of the exponent down from the scale, and 3 bits of the fraction,
// and is 0 for the lowest magnitude, whatever its sign. A square has 5 and 3 bits and no zero: its root is a divisor.
#pragma once

#include <harmonics/ops.hpp>

#include "engine/functional/reference.hpp"
#include "engine/tensor/moment_scales.hpp"

namespace harmonics::engine::reference {

// What a moment is: a running mean of either sign, or a mean of squares.
enum class MomentKind { mean, square };

// The moment in f32. `scale`: of 8 bits, else empty.
HTensor read_moment(MomentKind kind, const HTensor& stored, const HTensor& scale);

struct StoredMoment {
  HTensor elements, scale;  // scale: empty for 16 bits
};
// To bf16, or with a scale to U8.
StoredMoment store_moment(MomentKind kind, const HTensor& moment, const HTensor& step, DType type);

}  // namespace harmonics::engine::reference
