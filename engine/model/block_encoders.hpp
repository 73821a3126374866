// Encoders of blocks whose scales are searched for, compiled for wider vectors where the processor has them.
#pragma once

#include <cstdint>

#include <harmonics/tensor.hpp>

namespace harmonics::engine {

// Encodes `count` elements, whole blocks, with the bytes of encode_elements(), or with `weights`, one for each element,
// of encode_weighted(). `weights` may be null.
void encode_blocks(DType dtype, const float* from, const float* weights, void* to, int64_t count);

}  // namespace harmonics::engine
